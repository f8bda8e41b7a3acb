"""The pictures of a bench: intervals, pairs, blocks as they ran, rungs, memory; nothing that may not be shown."""

import math
from collections import deque
from collections.abc import Iterator

from dynotune.bench.judging.sentence import name, of_change
from dynotune.bench.showing.grids import speed_cell
from dynotune.config.load import ONE_SPEEDUP
from dynotune.results import phrases
from dynotune.results.comparable import hidden, label_of_kind, why_not
from dynotune.results.result import Arm, Block, Comparison, Interval, Result, Verdict
from dynotune.show import pictures
from dynotune.show.page import Heading, Part, Picture

MOST = 400
"""Rows, and blocks, that are drawn."""

_TONES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad", Verdict.SAME: "quiet", Verdict.SUSPECT: "bad"}


def _open(result: Result) -> list[Comparison]:
    """Those whose ratio may be shown."""
    return [one for one in result.comparisons if one.ratio is not None and why_not(result, one) is None][:MOST]


def _label(result: Result, one: Comparison) -> str:
    """What fits beside a row: all that begins alike is left out."""
    return of_change(result, one).removeprefix(ONE_SPEEDUP)


def _edges(ratio: Interval) -> tuple[float, float, float]:
    return ratio.low, ratio.estimate, ratio.high


def bench_pictures(result: Result) -> Iterator[Part]:
    """Each with its heading; those for which there is nothing to draw are left out."""
    compared = _open(result)
    floor = 0.0 if result.noise is None else result.noise.floor
    if compared:
        yield Heading("Speed against the other arm")
        spans = [
            pictures.Span(
                of_change(result, one),
                _edges(one.ratio),
                _TONES.get(one.verdict, "doubt"),
                speed_cell(result, one).text,
            )
            for one in compared
            if one.ratio is not None and one.ratio.low > 0
        ]
        yield Picture(
            pictures.intervals(spans, "Ratios with their 95 % intervals", floor),
            "Ratio of tokens a second with its 95 % interval. Triangle up: FASTER; down: SLOWER or SUSPECT; circle:"
            " SAME; square: not resolved. Grey band: noise floor.",
        )
    rows = [(_label(result, one), one.log_ratios) for one in compared if len(one.log_ratios) > 1]
    if result.noise is not None and len(result.noise.log_ratios) > 1:
        rows.append(("an arm against itself", result.noise.log_ratios))
    if rows:
        yield Heading("Pairs")
        yield Picture(
            pictures.pairs(rows, "Pairs about the mean of their comparison", floor),
            "Each circle is a pair of blocks on the same documents: how far its ratio lies from the mean of its row."
            " Grey band: noise floor. No pair is left out.",
        )
    runs = _runs(result)
    if runs:
        yield Heading("Blocks as they ran")
        yield Picture(
            pictures.blocks(
                runs, [name(arm.name) for arm in result.arms], "Rates of blocks, against the mean of their arm"
            ),
            "Rate of each block against the mean of its arm, in the order in which they ran: drift, and what was voided"
            " (hollow). Documents differ between pairs and are the same within one.",
        )
    yield from _rates(result)
    memory = [_memory_bar(arm) for arm in result.arms[:MOST] if arm.memory is not None or arm.failed]
    if any(bar.value is not None for bar in memory):
        yield Heading("Peak memory")
        yield Picture(
            pictures.bars(memory, "Peak memory of each arm", "GiB"),
            "Of a fresh process on the largest micro-batch of the plan. Filled: allocated; outline: reserved; line: the"
            " device's own figure.",
        )


def _runs(result: Result) -> list[pictures.Run]:
    waiting = {arm.name: deque(arm.blocks) for arm in result.arms}
    ordered: list[Block] = [waiting[arm].popleft() for arm in result.schedule if waiting.get(arm)]
    rest = [block for left in waiting.values() for block in left]
    ordered += sorted(rest, key=lambda block: (block.of_noise, block.pair))
    index = {arm.name: i for i, arm in enumerate(result.arms)}
    means = {
        arm.name: math.exp(sum(math.log(block.rate) for block in arm.counted) / len(arm.counted))
        for arm in result.arms
        if arm.counted
    }
    drawn = [block for block in ordered if block.arm in means and block.arm in index][:MOST]
    return [pictures.Run(index[block.arm], block.rate / means[block.arm], block.void is not None) for block in drawn]


def _rates(result: Result) -> Iterator[Part]:
    """The rungs of a ladder, or the arms of a sweep."""
    rungs = result.rungs
    if not rungs and result.kind != "sweep":
        return
    shut, rows = hidden(result), []
    for arm in (rungs or result.arms)[:MOST]:
        value = arm.per_second("tokens")
        if arm.failed is not None:
            rows.append(pictures.Bar(name(arm.name), None, arm.failure or "not measured"))
        elif arm.name in shut or value is None:
            rows.append(pictures.Bar(name(arm.name), None, "not comparable"))
        else:
            value /= result.devices_of(arm)
            rows.append(pictures.Bar(name(arm.name), value, _with_step(result, arm, phrases.rate(value))))
    yield Heading("The ladder" if rungs else "The sweep")
    yield Picture(
        pictures.bars(rows, "Tokens of documents a second of each arm", "tokens of documents/s of a device"),
        "Real tokens a second over all blocks that count"
        + (", with what each rung adds to the one before." if rungs else "."),
    )


def _with_step(result: Result, arm: Arm, text: str) -> str:
    text += f" {kind}" if (kind := label_of_kind(result, arm.name)) else ""
    step = next((one for one in result.comparisons if one.role == "step" and one.arm == arm.name), None)
    if step is None or step.ratio is None or why_not(result, step) is not None:
        return text
    return f"{text} ({phrases.gain(step.ratio).partition(' [')[0]})"


def _memory_bar(arm: Arm) -> pictures.Bar:
    if arm.memory is None:
        return pictures.Bar(name(arm.name), None, arm.failure or "not measured")
    memory = arm.memory
    words = " / ".join(phrases.gib(value) for value in (memory.allocated, memory.reserved, memory.device) if value)
    sizes = (pictures.gib_of(value) for value in (memory.allocated, memory.reserved, memory.device))
    allocated, reserved, device = sizes
    return pictures.Bar(name(arm.name), allocated, words, reserved, device)
