"""What the traced step of an arm spent its time on, by classes of work: from it follows the most that a change can gain."""

from dataclasses import replace
from typing import Any

from torch import nn

from dynotune.measure.kernel_classes import Surroundings
from dynotune.measure.timelines.rows import segments_of
from dynotune.measure.traces.step import TracedStep


def spent_in(traced: TracedStep, model: nn.Module) -> dict[str, Any] | None:
    """`seconds` by class of work, which add up to the traced step; `on_device`: whether they are a GPU's, where the rest is
    idle; `real_tokens` of the step. None where nothing could be traced, or not all of it."""
    evidence = traced.evidence
    if evidence is None or traced.events is None or traced.where is None:
        return None
    if evidence.device == "cuda" and not evidence.has_device_events:
        return None
    around = replace(surroundings(model), tokens=frozenset(evidence.facts.get("tokens", ())))
    line = segments_of(traced.events, traced.where, around, evidence.has_device_events)
    return {
        "seconds": {str(work): took / 1e9 for work, took in line.by_work().items()},
        "on_device": evidence.has_device_events,
        "real_tokens": int(evidence.facts["real_tokens"]),
    }


def surroundings(model: Any) -> Surroundings:
    """Of a transformers model, with PEFT's adapters or without."""
    head = model.get_output_embeddings()
    configs = getattr(model, "peft_config", {})
    return Surroundings(
        head_places=tuple(name for name, module in model.named_modules() if head is not None and module is head),
        vocabulary=None if head is None else int(head.weight.shape[0]),
        adapter_ranks=tuple(sorted({int(one.r) for one in configs.values() if getattr(one, "r", None)})),
        hidden=getattr(model.config.get_text_config(), "hidden_size", None),
    )
