"""Whether two commands did the same work, by what they reported, and what they did differently, in words."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from dynotune.bench.foreign.counting import ALIKE, WARM_UP
from dynotune.bench.foreign.measure import Measured
from dynotune.bench.running.disturbed import note_of_length
from dynotune.results.result import Block

LOSS_APART = 0.01

SHORTEST_START, SHARE_OF_SECONDS = 0.25, 0.1
"""Seconds, and a share of those that an arm reports, that its steps must leave to be called a start."""

SHORTEST_SET_UP, SHARE_OF_WALL = 0.5, 0.05
"""Seconds, and a share of the process. A framework takes longer to load, so seconds that leave less hold its start."""

Pair = tuple[Block, Block]


def why_other_work(found: Measured, arm: str, against: str) -> str:
    """Why the speeds of two commands say nothing about each other, as the end of a sentence; empty where they do.

    Every pair is looked at: of documents that are drawn anew in each run, some pair differs.
    """
    devices = found.devices_of
    if {arm, against} <= devices.keys() and devices[arm] != devices[against]:
        return f"{arm} used {devices[arm]} devices, {against} {devices[against]}"
    for name in (arm, against):
        if shows := found.padding.get(name):
            return f"tokens/s of {name} counts padding: {shows}"
    pairs = list(found.pairs(arm, against).values())
    return _tokens(pairs) or _labels(pairs)


def _tokens(pairs: Sequence[Pair]) -> str:
    worst = _furthest(pairs, "real_tokens")
    if worst is None:
        return ""
    more, fewer = worst
    said = f"{more.arm} counted {_times(more.real_tokens / fewer.real_tokens)} times the tokens of {fewer.arm}"
    if fewer.processed_tokens > fewer.real_tokens and _alike(more.real_tokens, fewer.processed_tokens):
        return f"{said}, as many as {fewer.arm} processed with its padding: it counts padding"
    return f"{said}: one of them counts padding, or they saw other documents"


def _labels(pairs: Sequence[Pair]) -> str:
    worst = _furthest([pair for pair in pairs if all(one.label_tokens for one in pair)], "label_tokens")
    if worst is None:
        return ""
    more, fewer = worst
    return f"{more.arm} counted {_times(more.label_tokens / fewer.label_tokens)} times the label tokens of {fewer.arm}"


def _furthest(pairs: Iterable[Pair], name: str) -> Pair | None:
    """The pair whose counts are furthest apart, that which counts more first; None where all are alike."""
    apart = [pair for pair in pairs if not _alike(getattr(pair[0], name), getattr(pair[1], name))]
    if not apart:
        return None
    one, other = max(apart, key=lambda pair: abs(math.log(getattr(pair[0], name) / getattr(pair[1], name))))
    return (one, other) if getattr(one, name) > getattr(other, name) else (other, one)


def _alike(one: int, other: int) -> bool:
    return abs(one - other) <= ALIKE * max(one, other)


def _times(ratio: float) -> str:
    """`1.31`, and as many digits as it takes to tell it from 1."""
    return f"{ratio:.2f}" if ratio >= 1.05 else f"{ratio:.4f}"


def differences(found: Measured) -> list[str]:
    """What the commands did differently, in sentences; no speed is among them, which may have to be hidden."""
    said = []
    first = found.names[0]
    for name in found.names[1:]:
        pairs = list(found.pairs(name, first).values())
        if pairs:
            said += _updates(pairs) + _losses(pairs)
            if found.asked.other_work and (why := why_other_work(found, name, first)):
                said.append(f"{why[0].upper()}{why[1:]}. `--other_work` says that this is meant.")
    set_ups = {name: seconds for name in found.names if (seconds := set_up(found, name)) is not None}
    if set_ups:
        each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in set_ups.items())
        said.append(f"Set-up (of the whole process, what its seconds leave): {each}; it is no part of the speed.")
    return said


def _updates(pairs: Sequence[Pair]) -> list[str]:
    arm, other = pairs[0]
    if not arm.steps or not other.steps or arm.steps == other.steps:
        return []
    fewer, more = (arm, other) if arm.steps < other.steps else (other, arm)
    times = _times(more.steps / fewer.steps)
    return [f"{fewer.arm} makes {times} times fewer updates than {more.arm} ({fewer.steps:,} for {more.steps:,})."]


def _losses(pairs: Sequence[Pair]) -> list[str]:
    both = [(one.loss, other.loss) for one, other in pairs if one.loss is not None and other.loss is not None]
    if not both:
        return []
    mine, theirs = (median(each) for each in zip(*both, strict=True))
    largest = max(abs(mine), abs(theirs))
    apart = abs(mine - theirs) / largest if largest else 0.0
    if apart <= LOSS_APART:
        return []
    arm, other = pairs[0]
    return [f"{arm.arm} ends at a loss of {mine:.4g}, {other.arm} at {theirs:.4g}: {apart:.1%} apart."]


def set_up(found: Measured, name: str) -> float | None:
    """Seconds of a process that were no training, as usual for this arm; of the first run, where no other counts."""
    blocks = found.counted(name).values()
    rest = [block.wall_seconds - block.seconds for block in blocks if block.wall_seconds is not None]
    if not rest and name in found.first:
        told, wall = found.first[name]
        rest = [wall - told.seconds]
    return median(rest) if rest else None


def _is_whole(found: Measured, name: str) -> bool:
    """Whether the seconds of an arm leave no room for its start."""
    rest, walls = set_up(found, name), [one.wall_seconds or 0.0 for one in found.counted(name).values()]
    return rest is not None and bool(walls) and rest < min(SHORTEST_SET_UP, SHARE_OF_WALL * median(walls))


def start_within(found: Measured, name: str) -> tuple[float, float, float] | None:
    """Seconds of an arm as usual, what its steps take of them by how long they took when they were watched, and how many
    they are; None where these fill them, or it is not known."""
    blocks = list(found.counted(name).values())
    usual = found.usual.get(name)
    if not blocks or not usual or found.asked.steps:
        return None
    seconds, steps = median(one.seconds for one in blocks), median(one.steps for one in blocks)
    rest = seconds - steps * usual
    return (seconds, steps * usual, steps) if steps and rest > max(SHORTEST_START, SHARE_OF_SECONDS * seconds) else None


def notes(found: Measured) -> list[str]:
    """What makes these figures weaker than those of configurations."""
    said = ["Maths: not checked: foreign commands. That both train the same is what their counts and losses say."]
    if found.asked.steps:
        said.append(
            f"Tokens and seconds were counted from outside, of {found.asked.steps:,} steps behind {WARM_UP + 1}; then each"
            " command was stopped."
        )
    said += [f"Whether {name} counts padding is not known: {why}." for name, why in found.unchecked.items()]
    whole = [name for name in found.names if _is_whole(found, name)]
    if whole:
        said.append(
            f"The seconds of {' and of '.join(whole)} are the whole wall time: start-up and compilation count as training."
        )
    for name in found.names:
        if name not in whole and (within := start_within(found, name)):
            seconds, filled, steps = within
            said.append(
                f"Of the {seconds:.1f} s of {name}, its {steps:,.0f} steps take about {filled:.1f}, as they were watched:"
                f" {seconds - filled:.1f} s of start or end (loading, compiling, first steps, saving) count as training."
            )
    how = (
        "give {times} times as many `--steps`"
        if found.asked.steps
        else "have each run take {times} times as many steps"
    )
    blocks = {name: [*found.counted(name).values()] for name in found.names}
    said += [note] if (note := note_of_length(blocks, how)) else []
    if any(not _alike(one.real_tokens, other.real_tokens) for one, other in found.noise_pairs):
        said.append(f"{found.names[0]} counted other tokens each time that it ran: it draws its documents anew.")
    if found.peaks:
        said.append("Peak memory is what the commands reported.")
    return said
