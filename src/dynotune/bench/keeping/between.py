"""Two benches that were run at different times, beside each other: how much faster an arm of that name is in the second.

Blocks on the same documents are paired. Still, hours or versions lie between the two, which no pairing takes out: the
interval is widened by the noise floors of both, and where machines differ that is said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dynotune.bench.judging.comparison import NO_FLOOR
from dynotune.bench.judging.sentence import name
from dynotune.bench.keeping.same_work import other_work
from dynotune.bench.statistics import LEVEL, estimate, t_quantile
from dynotune.errors import ConfigError, DataError
from dynotune.measure.words import same_definitions
from dynotune.printable import printable
from dynotune.results.comparable import hidden
from dynotune.results.history import machine_of
from dynotune.results.phrases import gain
from dynotune.results.result import Arm, Interval, Result


@dataclass(frozen=True, slots=True)
class Change:
    """Of one arm, from one bench to another."""

    arm: str
    ratio: Interval | None
    """Of tokens of documents a second a device, new over old. None where there is none, and `why` says why."""

    why: str = ""
    paired: bool = True
    """Whether both ran the same documents."""


def require_same_definitions(results: Sequence[Result]) -> None:
    """Raises `DataError` where figures of the same name mean different things, or where one was withdrawn."""
    same_definitions({f"{i + 1}. {one.name}": {"definitions": one.definitions} for i, one in enumerate(results)})


def changes(old: Result, new: Result) -> list[Change]:
    """Of every arm of `old`, in its order."""
    theirs = {arm.name: arm for arm in new.arms}
    return [_change(old, new, arm, theirs.get(arm.name)) for arm in old.arms]


def _change(old: Result, new: Result, before: Arm, after: Arm | None) -> Change:
    if after is None:
        return Change(before.name, None, f"there is no arm {name(before.name)} in {name(new.name)}")
    for result, arm in ((old, before), (new, after)):
        if arm.failed is not None:
            return Change(arm.name, None, f"{printable(arm.failed, 100)} in {name(result.name)}")
        if (why := hidden(result).get(arm.name)) is not None:
            return Change(arm.name, None, f"not comparable in {name(result.name)}: {why}")
    told = all(block.sequence_tokens for arm in (before, after) for block in arm.counted)
    first, second = (_by_pair(arm, "tokens" if told else "real_tokens") for arm in (before, after))
    if min(len(first), len(second)) < 2:
        return Change(before.name, None, "fewer than two blocks count")
    common = [pair for pair in first if pair in second]
    paired = len(common) >= 2 and all(first[pair][0] == second[pair][0] for pair in common)
    if paired:
        found = estimate([math.log(second[pair][1] / first[pair][1]) for pair in common])
        mean, half = found.mean, found.half_width
    else:
        mean, half = _welch([rate for _, rate in first.values()], [rate for _, rate in second.values()])
    floors = [0.0 if one.noise is None else math.log1p(one.noise.floor) for one in (old, new)]
    half = math.hypot(half, *floors)
    mean -= math.log(new.devices_of(after) / old.devices_of(before))
    ratio = Interval(low=math.exp(mean - half), estimate=math.exp(mean), high=math.exp(mean + half))
    return Change(before.name, ratio, paired=paired)


def _by_pair(arm: Arm, count: Literal["tokens", "real_tokens"]) -> dict[int, tuple[tuple[tuple[int, int], ...], float]]:
    """What was run of each pair (steps and tokens of its blocks), and at what rate. count: results of before do not tell
    tokens of documents, and two are held against each other by the same."""
    found: dict[int, list[tuple[int, int, float]]] = {}
    for block in arm.counted:
        found.setdefault(block.pair, []).append((block.first_step, getattr(block, count), block.seconds))
    return {
        pair: (
            tuple(sorted((step, tokens) for step, tokens, _ in blocks)),
            sum(tokens for _, tokens, _ in blocks) / sum(seconds for _, _, seconds in blocks),
        )
        for pair, blocks in found.items()
    }


def _welch(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Difference of means of logarithms and the half width of its interval, for blocks on different documents."""
    logs = [[math.log(rate) for rate in rates] for rates in (first, second)]
    means = [math.fsum(one) / len(one) for one in logs]
    errors = [
        math.fsum((x - mean) ** 2 for x in one) / (len(one) - 1) / len(one)
        for one, mean in zip(logs, means, strict=True)
    ]
    total = sum(errors)
    if total == 0:
        return means[1] - means[0], 0.0
    freedom = total**2 / sum(error**2 / (len(one) - 1) for error, one in zip(errors, logs, strict=True))
    return means[1] - means[0], t_quantile((1 + LEVEL) / 2, max(1, int(freedom))) * math.sqrt(total)


def said_beside(results: Sequence[Result]) -> list[str]:
    """What a reader of a comparison must know: other machines and versions, other work, what was cut off or withdrawn."""
    lines = []
    first = results[0]
    for one in results[1:]:
        a, b = machine_of(first), machine_of(one)
        differing = [
            f"{key} {printable(str(getattr(a, key)), 60) or '?'} and {printable(str(getattr(b, key)), 60) or '?'}"
            for key in ("device", "capability", "driver", "cuda", "torch", "triton", "python", "dynotune")
            if getattr(a, key) != getattr(b, key)
        ]
        if first.devices != one.devices:
            differing.append(f"devices {first.devices} and {one.devices}")
        if differing:
            lines.append(f"{name(one.name)}: another machine or other versions: {', '.join(differing)}")
        if first.operating_point != one.operating_point:
            lines.append(f"{name(one.name)}: another operating point: {printable(one.operating_point, 200)}")
        lines += _other_work(first, one)
    for one in results:
        if one.cut_off:
            lines.append(
                f"{name(one.name)} was CUT OFF: it has the rounds before that, and stopped by no rule of a bench"
            )
        if one.unfinished:
            lines.append(f"{name(one.name)} is UNFINISHED: {printable(one.unfinished, 200)}")
        if one.withdrawn is not None:
            instead = f"; {name(one.withdrawn.corrected_by)} holds instead" if one.withdrawn.corrected_by else ""
            lines.append(f"{name(one.name)} is WITHDRAWN: {printable(one.withdrawn.why, 160)}{instead}")
    return lines


def _other_work(first: Result, one: Result) -> list[str]:
    """Of arms with the same name, the keys in which they differ: what all arms differ in stands in one line."""
    found: dict[str, list[str]] = {}
    for arm in one.arms:
        if keys := other_work(first, one, arm.name):
            found.setdefault(keys, []).append(name(arm.name))
    return [f"{name(one.name)}: other work of {', '.join(arms)}: {keys}" for keys, arms in found.items()]


class Outcome(StrEnum):
    """Of a gate, for one arm."""

    FINE = "fine"
    REGRESSION = "REGRESSION"
    NOT_COMPARABLE = "NOT COMPARABLE"
    UNRESOLVED = "UNRESOLVED"
    """A loss beyond the limit can neither be shown nor excluded."""


@dataclass(frozen=True, slots=True)
class Judged:
    arm: str
    outcome: Outcome
    text: str


def gate(old: Result, new: Result, most: float) -> list[Judged]:
    """Whether an arm lost more than the share `most` of its speed: shown where the estimate is beyond it and the interval
    excludes that nothing changed, excluded where the whole interval is within it. Nothing is shown, either way, where one
    of both has no noise floor: the interval is then too narrow by what nobody knows. What was cut off passes no gate, nor
    does it stand for one: its rounds are as many as there was time for, and the arm that it was waiting for may have hung.

    Raises `DataError` where the figures have different definitions or one of the results was withdrawn.
    """
    require_same_definitions([old, new])
    for one in (old, new):
        if one.withdrawn is not None:
            raise DataError(
                f"{name(one.name)} was withdrawn: {printable(one.withdrawn.why, 160)}. Name another result."
            )
    if cut := [one for one in (old, new) if one.cut_off]:
        why = "the bench was cut off, and has not measured what it was to measure. Run it to its end"
        return [Judged(name(one.name), Outcome.NOT_COMPARABLE, why) for one in cut]
    if short := [one for one in (old, new) if one.unfinished]:
        return [Judged(name(one.name), Outcome.NOT_COMPARABLE, printable(one.unfinished, 200)) for one in short]
    for what, a, b in (
        ("device", machine_of(old).device, machine_of(new).device),
        ("devices", old.devices, new.devices),
        ("operating point", old.operating_point, new.operating_point),
    ):
        if a != b:
            why = f"another {what}: {printable(str(a), 160)} and {printable(str(b), 160)}"
            return [Judged(name(new.name), Outcome.NOT_COMPARABLE, why)]
    return [_judged(change, old, new, most) for change in changes(old, new)]


def _judged(change: Change, old: Result, new: Result, most: float) -> Judged:
    arm, ratio = name(change.arm), change.ratio
    if keys := other_work(old, new, change.arm):
        return Judged(arm, Outcome.NOT_COMPARABLE, f"at another operating point: {keys}")
    if ratio is None:
        after = next((one for one in new.arms if one.name == change.arm), None)
        lost = after is not None and after.failed is not None
        return Judged(arm, Outcome.REGRESSION if lost else Outcome.NOT_COMPARABLE, change.why)
    text = gain(ratio) + ("" if change.paired else " (other documents)")
    if without := _without_floor(old, new):
        return Judged(arm, Outcome.NOT_COMPARABLE, f"{text}: neither a loss nor that there is none is shown: {without}")
    if ratio.estimate < 1 - most and ratio.high < 1:
        return Judged(arm, Outcome.REGRESSION, text)
    if ratio.low >= 1 - most:
        return Judged(arm, Outcome.FINE, text)
    return Judged(arm, Outcome.UNRESOLVED, f"{text}: a loss of {100 * (1 - ratio.low):.1f} % is not excluded")


def _without_floor(old: Result, new: Result) -> str:
    """Which of the two has no noise floor, and why, as the end of a sentence; empty where both have one."""
    bare = [one for one in (old, new) if one.noise is None]
    return "; ".join(f"{printable(one.noise_caveat or NO_FLOOR, 160)} in {name(one.name)}" for one in bare)


def limit(text: str) -> float:
    """`3%` or `0.03` as a share. Raises `ConfigError`."""
    digits, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        value = float(digits) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ConfigError(f"`--max_regression {printable(text, 40)}` is no share of a speed. Write `3%` or `0.03`.")
    return value
