"""Steps laid out on several ranks: each rank's documents in micro-batches of their own, as many on every rank."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dynotune.plan.epoch import SAMPLED_STEPS, Layout, ladder_of
from dynotune.plan.ladder import RUNGS, Ladder
from dynotune.plan.layout import MicroBatch
from dynotune.plan.packing import arrange
from dynotune.plan.spread import Cost, imbalance, spread

EMPTY_TOKENS = 2
"""Of an empty micro-batch on the plain path: the fewest that a loss over the next token can be computed of."""

LayOut = Callable[[NDArray[np.int64], NDArray[np.int64]], list[MicroBatch]]
"""Micro-batches of the documents at rows [documents] of these lengths [documents]."""


@dataclass(frozen=True, slots=True)
class RankedLayout(Layout):
    """How the steps of an epoch are executed by all ranks together."""

    a_rank: NDArray[np.int64]
    """Micro-batches of each rank, empty ones included [steps]."""

    empty: int
    """Micro-batches that hold padding alone, in all."""

    imbalance: NDArray[np.float64]
    """Cost of the most loaded rank over the least possible [steps]: `spread.imbalance`."""


def on_ranks(
    rows: NDArray[np.int64], lengths: NDArray[np.int64], world: int, cost: Cost, lay_out: LayOut, empty_tokens: int
) -> list[list[MicroBatch]]:
    """Every rank's micro-batches for the documents at `rows` [documents]: each document stands in exactly one of them.

    All ranks get equally many, so that what ranks do together inside a micro-batch finds all of them; empty ones of
    `empty_tokens` tokens fill up.
    """
    if world == 1:
        return [lay_out(rows, lengths)]
    laid_out = [lay_out(rows[one], lengths[one]) for one in spread(cost.of(lengths), world)]
    most = max(map(len, laid_out))
    for own in laid_out:
        own += [MicroBatch(rows[:0], empty_tokens)] * (most - len(own))
    return laid_out


def empty_tokens(ladder: Ladder | None) -> int:
    """Tokens of an empty micro-batch: the smallest rung, or of the plain path."""
    return EMPTY_TOKENS if ladder is None else ladder.rungs[0]


def ladder_on_ranks(
    lengths: NDArray[np.int64],
    steps: NDArray[np.int64],
    capacity: int,
    most: int,
    longest: int,
    world: int,
    cost: Cost,
    rungs: int = RUNGS,
    slack: float = 0.0,
) -> Ladder:
    """`ladder_of` for shares of steps instead of whole ones, those of steps spread evenly over the epoch."""
    count = len(steps) - 1
    sampled = np.unique(np.linspace(0, count - 1, min(count, max(1, SAMPLED_STEPS // world))).astype(np.int64))
    parts = [
        values[one]
        for values in (lengths[steps[step] : steps[step + 1]] for step in sampled.tolist())
        for one in spread(cost.of(values), world)
        if len(one)
    ]
    bounds = np.concatenate([[0], np.cumsum([len(one) for one in parts])])
    share = min(most, most // world + longest)
    return ladder_of(np.concatenate(parts), bounds, capacity, share, max(longest, int(lengths.max())), rungs, slack)


def layout_on_ranks(
    lengths: NDArray[np.int64], steps: NDArray[np.int64], ladder: Ladder | None, world: int, cost: Cost
) -> RankedLayout:
    """The layout of documents of `lengths` [documents] tokens in steps that begin at `steps` [steps + 1]."""
    count, filler = len(steps) - 1, empty_tokens(ladder)
    zeros = np.zeros(count, np.int64)
    made = RankedLayout(
        micro_batches=zeros.copy(),
        real_tokens=zeros.copy(),
        processed_tokens=zeros.copy(),
        documents=zeros.copy(),
        used={},
        a_rank=zeros.copy(),
        empty=0,
        imbalance=np.zeros(count),
    )
    used = Counter[int]()
    empty = 0
    for step, values in enumerate(_steps(lengths, steps)):
        costs = cost.of(values)
        shares = spread(costs, world)
        taken = [_tokens(values[one], ladder) for one in shares]
        most = max(map(len, taken))
        missing = most * world - sum(map(len, taken))
        made.a_rank[step], made.micro_batches[step], made.imbalance[step] = most, most * world, imbalance(costs, shares)
        made.real_tokens[step], made.documents[step] = values.sum(), sum(map(len, shares))
        made.processed_tokens[step] = sum(map(sum, taken)) + missing * filler
        empty += missing
        used.update(tokens for own in taken for tokens in own)
        used[filler] += missing
    counts = {} if ladder is None else {rung: used[rung] for rung in ladder.rungs}
    return replace(made, used=counts, empty=empty)


def _tokens(lengths: NDArray[np.int64], ladder: Ladder | None) -> list[int]:
    """Tokens of each micro-batch of one rank's documents."""
    return lengths.tolist() if ladder is None else [tokens for _, tokens in arrange(lengths, ladder)]


def _steps(lengths: NDArray[np.int64], steps: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for first, end in zip(steps[:-1].tolist(), steps[1:].tolist(), strict=True):
        yield lengths[first:end]
