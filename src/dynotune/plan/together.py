"""Rows of a step that stand in one micro-batch: a plan lays them out as one unit, whose tokens count together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dynotune.plan.ladder import Ladder
from dynotune.plan.layout import MicroBatch
from dynotune.plan.packing import lay_out
from dynotune.plan.ranked import empty_tokens, on_ranks
from dynotune.plan.spread import Cost
from dynotune.plan.truncation import Units


@dataclass(frozen=True, slots=True)
class Together:
    """The units of a step. Each of its rows is in exactly one."""

    members: Sequence[NDArray[np.int64]]
    """Places among the step's rows, ascending, of each unit."""

    tokens: NDArray[np.int64]
    """[units] that each takes in a micro-batch."""

    def places(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of all rows of these units, ascending."""
        return np.sort(np.concatenate([units[:0], *(self.members[unit] for unit in units.tolist())]))


def lay_out_step(
    spans: Units, rows: NDArray[np.int64], ladder: Ladder | None, world: int, cost: Cost
) -> list[list[MicroBatch]]:
    """Every rank's micro-batches for a step of `rows`, as `on_ranks`: what is to stand together does.

    Rows keep the order of the step inside a micro-batch.
    """
    units = spans.together(rows, None if ladder is None else ladder.top)
    tokens = spans.lengths_of(rows) if units is None else units.tokens
    every = on_ranks(np.arange(len(tokens)), tokens, world, cost, partial(lay_out, ladder=ladder), empty_tokens(ladder))

    def of_rows(batch: MicroBatch) -> MicroBatch:
        places = batch.rows if units is None else units.places(batch.rows)
        return MicroBatch(rows[places], batch.tokens, rows, int(tokens[batch.rows].sum()))

    return [[of_rows(batch) for batch in own] for own in every]


def units_of(
    spans: Units, rows: NDArray[np.int64], steps: NDArray[np.int64], most: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens of every unit of an epoch, and the offsets [steps + 1] at which steps begin among them.

    rows: of the epoch in its order; steps: where each step begins among them [steps + 1]; most: tokens of a micro-batch.
    """
    tokens, counts = [], []
    for first, end in zip(steps[:-1].tolist(), steps[1:].tolist(), strict=True):
        units = spans.together(rows[first:end], most)
        if units is None:
            return spans.lengths_of(rows), steps
        tokens.append(units.tokens)
        counts.append(len(units.tokens))
    return np.concatenate(tokens), np.append(0, np.cumsum(counts))
