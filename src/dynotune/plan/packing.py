"""Documents into micro-batches: as few as fit, in static token counts, with as little padding as can be.

Two stages. Best-fit decreasing gives the fewest micro-batches that it can find. Then the least full of them are laid out
once more, into rungs of the ladder that hold their tokens with less padding: a step of 17,000 tokens fits two micro-batches
of 8,576 better than one of 16,384 and one of 1,024.

Best-fit decreasing: D. S. Johnson, "Near-optimal bin packing algorithms", 1973.
"""

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from dynotune.plan.ladder import Ladder
from dynotune.plan.layout import MicroBatch

LAID_OUT_AGAIN = 2
"""Micro-batches of a step that the second stage takes apart: the others are full."""

ATTEMPTS = 8
"""Sets of rungs that the second stage tries, cheapest first, before it leaves the first stage's result."""


def pack_step(lengths: NDArray[np.int64], capacity: int) -> list[NDArray[np.int64]]:
    """Best-fit decreasing: the documents [documents] of each bin, as indices into `lengths` in ascending order.

    No document is longer than `capacity`, and no bin holds more. The same lengths always give the same bins.
    """
    return [np.array(sorted(one), np.int64) for one in best_fit(lengths.tolist(), longest_first(lengths), capacity)]


def lay_out(rows: NDArray[np.int64], lengths: NDArray[np.int64], ladder: Ladder | None) -> list[MicroBatch]:
    """Micro-batches of the documents at `rows` [documents], of `lengths` tokens each: every document stands in exactly one.

    No document is longer than the ladder's top. Documents keep their order inside a micro-batch. Without a ladder each has
    a micro-batch of its own length: the plain path.
    """
    if ladder is None:
        return [MicroBatch(rows[i : i + 1], int(lengths[i])) for i in range(len(rows))]
    return [MicroBatch(rows[one], tokens) for one, tokens in arrange(lengths, ladder)]


def arrange(lengths: NDArray[np.int64], ladder: Ladder) -> list[tuple[NDArray[np.int64], int]]:
    """Indices into `lengths` and the rung of every micro-batch."""
    if not len(lengths):
        return []
    total, longest = int(lengths.sum()), int(lengths.max())
    assert longest <= ladder.top, (longest, ladder.top)
    if total <= ladder.top and len(next(ladder.sets(total, longest))) == 1:
        return [(np.arange(len(lengths)), ladder.rung(total))]
    values, order = lengths.tolist(), longest_first(lengths)
    bins = best_fit(values, order, ladder.top)
    loads = [sum(values[i] for i in one) for one in bins]
    by_load = sorted(range(len(bins)), key=lambda b: (-loads[b], b))
    kept, again = by_load[:-LAID_OUT_AGAIN], by_load[-LAID_OUT_AGAIN:]
    done = [(bins[b], ladder.rung(loads[b])) for b in kept]
    left = sorted((i for b in again for i in bins[b]), key=lambda i: (-values[i], i))
    done += _into_rungs(values, left, ladder, ladder.cost([loads[b] for b in again])) or [
        (bins[b], ladder.rung(loads[b])) for b in again
    ]
    return [(np.array(sorted(one), np.int64), rung) for one, rung in done]


def _into_rungs(values: list[int], left: list[int], ladder: Ladder, known: int) -> list[tuple[list[int], int]] | None:
    """The documents `left` (longest first) in the cheapest set of rungs that takes them; None if none is below `known`."""
    total = sum(values[i] for i in left)
    for attempt, rungs in enumerate(ladder.sets(total, values[left[0]], known)):
        if attempt == ATTEMPTS:
            return None
        bins = _into(values, left, rungs)
        if bins is not None:
            # A rung that the documents do not need after all is not spent.
            return [(one, ladder.rung(sum(values[i] for i in one))) for one in bins if one]
    return None


def _into(values: list[int], left: list[int], rungs: tuple[int, ...]) -> list[list[int]] | None:
    """Best fit into bins of these capacities, or None where a document finds no room."""
    room = sorted((rung, b) for b, rung in enumerate(rungs))
    bins: list[list[int]] = [[] for _ in rungs]
    for i in left:
        at = bisect_left(room, (values[i], -1))
        if at == len(room):
            return None
        free, b = room.pop(at)
        bins[b].append(i)
        insort(room, (free - values[i], b))
    return bins


def best_fit(values: list[int], order: list[int], capacity: int) -> list[list[int]]:
    """Each document in turn goes where the least room is left by it; of equals, to the bin that has waited longest."""
    turns = len(order)
    waiting: list[int] = []
    """Bins with room, ascending: their free tokens * `turns` + the turn at which they got their last document."""
    of_turn: list[list[int]] = []
    bins: list[list[int]] = []
    for turn, i in enumerate(order):
        length = values[i]
        at = bisect_left(waiting, length * turns)
        if at == len(waiting):
            assert length <= capacity, (length, capacity)
            free, one = capacity, [i]
            bins.append(one)
        else:
            free, last = divmod(waiting.pop(at), turns)
            one = of_turn[last]
            one.append(i)
        of_turn.append(one)
        if free > length:
            insort(waiting, (free - length) * turns + turn)
    return bins


def longest_first(lengths: NDArray[np.int64]) -> list[int]:
    order: list[int] = np.argsort(-lengths, kind="stable").tolist()
    return order
