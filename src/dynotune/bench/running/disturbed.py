"""Whether something besides the arms made two blocks of a pair unlike: then they are measured again.

Arms may differ in their clocks by themselves: the one that keeps the GPU busier reaches its power cap, and its clocks fall,
by as much as it draws. On an H200 that was 1,550 MHz beside 1,896, and 1,737 in the next block of the same arm, so that no
round ever counted. So lower clocks are no disturbance where the power cap lowered them: what that costs is part of the arm's
time. Elsewhere a difference of clocks is one only where the pairs before did not show it too, and the first pair, which has
none before it, is measured twice.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from dynotune.bench.asking.schedule import SECONDS_A_BLOCK
from dynotune.measure.steady import SEGMENT_SECONDS
from dynotune.results.result import Block, Clocks

CLOCKS_APART = 0.03
"""As a share."""

HOST_APART = 0.02
"""By which the clock of the host and that of the device may differ over a block."""

POWER = "power cap"

GROWTH = 0.01
"""Of a block's time: more than that for new segments of memory, and it is none of level steps. On an H200 the first steps of
an arm behind a change had 500 to 900 of them, the second 50 to 100."""

CAPS = frozenset({POWER, "application clocks", "display clocks", "sync boost"})
"""Reasons for lower clocks that are a setting or the way of an arm, and no mishap."""


def clocks_apart(one: Clocks, other: Clocks) -> float | None:
    """ln(mean clock of one / of the other); None where one is not known."""
    return math.log(one.sm_mhz / other.sm_mhz) if one.sm_mhz and other.sm_mhz else None


def recompiled(block: Block) -> str:
    """Why a block does not count whatever else ran beside it: also when it runs again by itself."""
    if not block.recompiles:
        return ""
    return f"{block.recompiles} recompilation{'s' * (block.recompiles > 1)} in a block of {block.arm}"


def growth(block: Block) -> str:
    """How far memory grew in a block, as the end of a sentence."""
    return f"{block.segments} new segment{'s' * (block.segments > 1)} of device memory in a block of {block.arm}"


def grown(block: Block) -> bool:
    """Whether a block does not count the first time that it is measured: memory was taken from the device in it, as in a
    step of warming up.

    Behind a change of arms steps find other sizes cached. Measured again, on the same documents, they find theirs, so that
    what still grows then is the arm's own.
    """
    return block.segments * SEGMENT_SECONDS > GROWTH * block.seconds


def disturbance(one: Block, other: Block, before: Sequence[float] = ()) -> str:
    """Why a pair does not count, as the end of a sentence; empty where it does.

    before: `clocks_apart` of all pairs of these two arms that were measured earlier, in the same sense, those that were
    void among them.
    """
    if why := recompiled(one) or recompiled(other):
        return why
    if (mishap := set(one.clocks.throttled) ^ set(other.clocks.throttled)) - CAPS:
        return f"clocks were lowered in one block only ({', '.join(sorted(mishap - CAPS))})"
    if one.clocks.other_processes != other.clocks.other_processes:
        return "another process was on the GPU in one block only"
    apart = clocks_apart(one.clocks, other.clocks)
    if apart is None or abs(apart) <= CLOCKS_APART or (before and abs(apart - median(before)) <= CLOCKS_APART):
        return ""
    if POWER in (one if apart < 0 else other).clocks.throttled:
        return ""
    return (
        f"clocks were {math.expm1(abs(apart)):.1%} apart ({one.clocks.sm_mhz:,.0f} and {other.clocks.sm_mhz:,.0f} MHz)"
    )


def note_of_clocks(first: str, apart: Mapping[str, Sequence[float]]) -> str:
    """Which arms run at other clocks than the first one by themselves, as a sentence; empty where none does.

    apart: by arm `clocks_apart` of the pairs that count, arm over first.
    """
    usual = {name: median(every) for name, every in apart.items() if every}
    unlike = {name: math.expm1(one) for name, one in usual.items() if abs(one) > CLOCKS_APART}
    if not unlike:
        return ""
    if len(unlike) == 1:
        [(name, share)] = unlike.items()
        return f"{name} runs at clocks {abs(share):.1%} {'above' if share > 0 else 'below'} those of {first}."
    told = ", ".join(f"{name} {share:+.1%}" for name, share in sorted(unlike.items(), key=lambda one: one[1]))
    return f"Clocks are not those of {first}: {told}."


def note_of_length(blocks: Mapping[str, Sequence[Block]], remedy: str) -> str:
    """That blocks are so short that neighbours have much in common (`SECONDS_A_BLOCK`), as a sentence; empty where they are
    not.

    blocks: that count, by arm. remedy: the end of a sentence, in which `{times}` is how many times longer they would have to
    be.
    """
    lasts = {name: median(block.seconds for block in every) for name, every in blocks.items() if every}
    if not lasts or (least := min(lasts.values())) >= SECONDS_A_BLOCK or least <= 0:
        return ""
    name = min(lasts, key=lasts.__getitem__)
    return (
        f"Blocks of {name} take {least:.2g} s, less than the {SECONDS_A_BLOCK} s that honest intervals need:"
        f" {remedy.format(times=math.ceil(SECONDS_A_BLOCK / least))}."
    )


def note_of_host(arms: Mapping[str, Sequence[Block]]) -> str:
    """In which arms the host decides how long they take, as a sentence; empty where in none. arms: their blocks."""
    usual = {}
    for name, blocks in arms.items():
        shares = [block.seconds / block.device_seconds - 1 for block in blocks if block.device_seconds]
        if shares and (share := median(shares)) > HOST_APART:
            usual[name] = share
    if not usual:
        return ""
    if len(usual) == 1:
        [(name, share)] = usual.items()
        return f"{name} is host-bound: its blocks take {share:.1%} longer than the device's work in them."
    told = ", ".join(f"{name} {share:.1%}" for name, share in usual.items())
    return f"Host-bound, by how much longer blocks take than the device's work in them: {told}."
