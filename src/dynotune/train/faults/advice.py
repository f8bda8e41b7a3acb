"""Which settings take less memory, in the order in which to try them, and which do not although one would think so."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.config.checking.activations import said
from dynotune.config.whole import WholeConfig
from dynotune.estimate.memory import StepMemory
from dynotune.plan.ladder import round_down, round_up
from dynotune.train.faults.shortage import Shortage, gib

LAYOUT_PHASES = ("forward", "backward")
"""Phases whose memory grows with the micro-batch."""

STATE_PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the advice depends on."""

    phase: str
    config: WholeConfig
    packed: bool
    tokens: int | None = None
    """Of the largest micro-batch."""

    longest: int | None = None
    """Tokens that a micro-batch must hold."""

    longest_document: int | None = None
    """Tokens of the longest one: what `max_length` cuts. A pair is two."""

    memory: StepMemory | None = None
    """None where it cannot be estimated."""


def no_help(at: Circumstances) -> list[str]:
    """Settings that others lower when memory runs out, and why they change nothing here."""
    if at.phase not in (*LAYOUT_PHASES, "optimizer", "evaluation"):
        return []
    why = "they say what a step contains; one document at a time is executed whatever they are"
    if at.packed:
        why = "they say what a step contains; what is executed at once follows from `micro_batch_tokens`"
    names = "`per_device_train_batch_size`, `gradient_accumulation_steps`, `global_batch_size`"
    if at.phase == "evaluation":
        names = "`per_device_eval_batch_size`"
        why = "held-out documents are laid out like training's, and the loss is a mean over tokens"
    if at.phase == "optimizer":
        return [f"{names}, `micro_batch_tokens`: an optimizer's states have the size of what is trained"]
    return [f"{names}: {why}"]


def help_with(at: Circumstances, shortage: Shortage) -> list[str]:
    """What to change, the change that costs least first."""
    lines = [*_fragments(shortage), *_neighbours(shortage)]
    if at.phase == "generation":
        return [
            *lines,
            "fewer `eval_samples` do not: each is generated alone. A smaller `eval_sample_max_new_tokens` does",
        ]
    if at.phase == "loading":
        lines += ["`dtype: bfloat16`: half of what float32 weights take (frozen weights keep their result to rounding)"]
    if at.phase in (*LAYOUT_PHASES, "evaluation", "probing", "the reference"):
        lines += _smaller_micro_batches(at)
    if at.phase in LAYOUT_PHASES:
        lines += [*_checkpointing(at), *_shorter(at)]
    if at.phase in STATE_PHASES:
        lines += _less_state(at)
    return lines or ["a device with more memory, or a smaller model"]


def _fragments(shortage: Shortage) -> Iterator[str]:
    kept, asked = shortage.reserved, shortage.asked
    if kept is None or asked is None or kept.bytes < asked.bytes:
        return
    for name in dict.fromkeys((shortage.setting, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")):
        if "expandable_segments:true" in os.environ.get(name, "").lower():
            return
    yield (
        f"the environment variable `{shortage.setting}=expandable_segments:True`: {kept} are reserved and not allocated,"
        f" which is more than the {asked} that were asked for, but in pieces (the same result)"
    )


def _neighbours(shortage: Shortage) -> Iterator[str]:
    if shortage.others:
        yield f"other processes hold {gib(shortage.others)} of the device: end them, or take another one"


def _smaller_micro_batches(at: Circumstances) -> Iterator[str]:
    if not at.packed or at.tokens is None:
        return
    smaller = max(round_down(at.tokens // 2), round_up(at.longest or 1))
    if smaller < at.tokens:
        yield f"`micro_batch_tokens: {smaller}`{_instead(at, smaller)} (the same result)"


def _checkpointing(at: Circumstances) -> Iterator[str]:
    if at.config.gradient_checkpointing or (at.memory is not None and at.memory.policy in ("full", "offload")):
        return
    estimate = ""
    if at.memory is not None and at.tokens is not None:
        estimate = _from_to(_beside_weights(at.memory, at), _beside_weights(at.memory.under("full"), at))
    others = [f"`{one.written}`" for one in said(at.config) if "full" not in one.agrees]
    instead = f" in the place of {' and '.join(others)}" if others else ""
    yield f"`gradient_checkpointing: true`{instead}{estimate} (the same result, slower)"


def _shorter(at: Circumstances) -> Iterator[str]:
    """Only where what is never divided is what makes the largest micro-batch."""
    if at.tokens is None or at.longest is None or (at.packed and round_up(at.longest) < at.tokens):
        return
    document = at.longest_document or at.longest
    if half := document // 2:
        yield (
            f"`max_length: {half}`{_instead(at, at.longest // 2)} (another result: what is longer is cut; the longest"
            f" document has {document:,} tokens)"
        )


def _less_state(at: Circumstances) -> Iterator[str]:
    if at.config.use_peft:
        if at.phase == "optimizer":
            yield f"a smaller `lora_r` than {at.config.lora_r} (another result)"
        return
    states = ""
    if at.memory is not None:
        parts = {part.name: part.bytes for part in at.memory.parts(64, 1.0, packed=True)}
        states = f": gradients and optimizer states take {gib(parts['gradients'] + parts['optimizer'])} now"
    yield f"`use_peft: true` (LoRA){states} (another result)"


def _instead(at: Circumstances, tokens: int) -> str:
    if at.memory is None or at.tokens is None:
        return ""
    return _from_to(_beside_weights(at.memory, at), _beside_weights(at.memory, at, tokens))


def _beside_weights(memory: StepMemory, at: Circumstances, tokens: int | None = None) -> int:
    parts = memory.parts(tokens or at.tokens or 0, 1.0, packed=at.packed)
    return sum(part.bytes for part in parts if part.name != "weights")


def _from_to(now: int, then: int) -> str:
    return f": an estimated {gib(then)} beside the weights instead of {gib(now)}"
