"""A bench in words: where it was measured, of what, what the arms do differently, and what of the plan was seen."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dynotune.bench.asking.arms import Arm, between, devices_of, in_words, matter_of, settings_of
from dynotune.bench.asking.asked import Asked
from dynotune.bench.running.measure import Measured
from dynotune.config.whole import WholeConfig
from dynotune.results.result import Sample
from dynotune.train.checkpoints.decisions import Matter

QUANTILES = {"5 %": 0.05, "50 %": 0.5, "95 %": 0.95, "max": 1.0}

FEWER = 1.05
"""How many times fewer updates an epoch makes before it is said."""


def operating_point(asked: Asked, stood: Mapping[str, Any] | None, device: str) -> str:
    """In a line: model, method, hardware, data, examples a step, precision, seed. stood: what an arm said of itself; None:
    none stood, and examples and precision are not known."""
    config = asked.arms[0].config
    facts = stood["model"] if stood else {}
    model = str(facts.get("architecture") or config.model_name_or_path).rsplit("/", 1)[-1]
    size = facts.get("parameters")
    method = f"LoRA r{config.lora_r}" if config.use_peft else "full"
    data = str(config.dataset_name or "several data sets").rsplit("/", 1)[-1]
    parts = [
        f"{model}{f' {_count(size)}' if size else ''} {config.method.command} {method}",
        f"{config.gpus or 1}x {device}",
        data,
        *([f"{stood['examples_a_step']} examples a step", str(stood["precision"])] if stood else []),
        f"seed {config.seed}",
    ]
    return " · ".join(parts)


def _count(parameters: int) -> str:
    """`7.62B`, `193k`."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.3g}{unit}"
    return str(parameters)


def sample_of(found: Measured) -> Sample | None:
    """Of the plan's examples, as the first arm met them."""
    if not found.lengths:
        return None
    sample, plan = (np.asarray(found.lengths[name], dtype=np.int64) for name in ("sample", "plan"))
    if not len(sample):
        return None
    quantiles = {
        name: (int(np.quantile(sample, q, method="higher")), int(np.quantile(plan, q, method="higher")))
        for name, q in QUANTILES.items()
    }
    share = min(1.0, len(sample) / len(plan))
    longest, of_plan = quantiles["max"]
    sentence = f"{len(sample):,} of the plan's {len(plan):,} examples were measured ({share:.0%})"
    if longest < of_plan:
        beyond = int((plan > longest).sum())
        sentence += f"; nothing is said of {beyond:,} that are longer than {longest:,} tokens"
    return Sample(
        examples=len(sample),
        real_tokens=int(sample.sum()),
        examples_of_plan=len(plan),
        real_tokens_of_plan=int(plan.sum()),
        lengths=quantiles,
        sentence=f"{sentence}.",
    )


def differences(found: Measured) -> list[str]:
    """What the arms do differently, in sentences: updates an epoch first, then keys that change what is learned."""
    asked, warm = found.asked, found.cast.warm
    first = asked.arms[0]
    said = []
    for arm in asked.arms[1:]:
        if arm.name not in warm or first.name not in warm:
            continue
        said += _devices(first, arm)
        said += _updates(first.name, arm.name, warm[first.name].stood, warm[arm.name].stood)
        said += _fill(found, first.name, arm.name)
        learned = _learned(first.config, arm.config)
        if learned:
            words = in_words(learned)
            what = "" if arm.name == words else f": {words}"
            said.append(f"{arm.name} changes what is learned (behavioural){what}.")
    if not found.same_documents:
        said.append(
            "The arms' steps are made of other rows, so blocks hold about as many tokens and not the same documents."
        )
    return list(dict.fromkeys(said))


def _devices(first: Arm, arm: Arm) -> list[str]:
    """Where arms train on other numbers of devices: rates are of one, a ratio is not."""
    mine, theirs = devices_of(arm), devices_of(first)
    if mine == theirs:
        return []
    return [f"Rates are of one device, ratios of all: {arm.name} trains on {mine} and {first.name} on {theirs}."]


def _updates(a: str, b: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    mine, theirs = first["steps_an_epoch"], second["steps_an_epoch"]
    if max(mine, theirs) < FEWER * min(mine, theirs):
        return []
    fewer, more = (b, a) if theirs < mine else (a, b)
    low, high = sorted((mine, theirs))
    return [f"{fewer} makes {high / low:.1f} times fewer updates an epoch than {more} ({low:,} for {high:,})."]


def _fill(found: Measured, a: str, b: str) -> list[str]:
    """Where one arm processes padding: its processed tokens are no measure."""
    said = []
    for name in (a, b):
        blocks = found.counted(name).values()
        real, processed = sum(x.real_tokens for x in blocks), sum(x.processed_tokens for x in blocks)
        if processed and real / processed < 0.9:
            said.append(
                f"Of the tokens that {name} processes {1 - real / processed:.0%} are padding; they do not count."
            )
    return said


def _learned(first: WholeConfig, arm: WholeConfig) -> dict[str, Any]:
    """Settings of an arm that change what is learned."""
    settings = settings_of(first, arm)
    keys = between(first, arm).changed
    return {
        key: value
        for key, value in settings.items()
        if key in keys and matter_of(key) in (Matter.ERROR, Matter.WARNING, Matter.PLAN)
    }
