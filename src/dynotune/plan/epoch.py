"""The layout of a whole epoch: the ladder that fits it, and how its steps are executed."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynotune.plan.ladder import RUNGS, Ladder, choose_ladder, improve_ladder, round_down, round_up
from dynotune.plan.packing import LAID_OUT_AGAIN, arrange, pack_step

SAMPLED_STEPS = 2048
"""Steps by which a ladder is chosen, at most, spread evenly over the epoch: more do not change it."""

SAMPLED_DOCUMENTS = 1 << 17
"""Documents by which it is chosen, about and at most: large steps hold enough of them in fewer steps."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the steps of an epoch are executed. Arrays are [steps]."""

    micro_batches: NDArray[np.int64]
    real_tokens: NDArray[np.int64]
    processed_tokens: NDArray[np.int64]
    documents: NDArray[np.int64]
    """Those that stand in a micro-batch: counted where they were laid out."""

    used: dict[int, int]
    """Rung to the number of micro-batches that take it. Empty on the plain path."""

    @property
    def fill(self) -> float:
        """Real tokens over processed tokens."""
        return float(self.real_tokens.sum() / self.processed_tokens.sum())


def ladder_of(
    lengths: NDArray[np.int64],
    steps: NDArray[np.int64],
    capacity: int,
    most: int | None = None,
    longest: int = 0,
    rungs: int = RUNGS,
    slack: float = 0.0,
) -> Ladder:
    """The ladder for documents of `lengths` [documents] tokens, of which `steps` [steps + 1] says where each step begins.

    Its top is `capacity`, or the longest document where that is longer; less where no step can hold as much.
    most, longest: tokens of the largest step and document that other epochs may bring; default those of this one. rungs,
    slack: as in `choose_ladder`.
    """
    totals = np.add.reduceat(lengths, steps[:-1])
    fits_all = round_up(max(int(totals.max()), most or 0))
    top = max(min(round_down(capacity), fits_all), round_up(max(int(lengths.max()), longest)))
    count = len(totals)
    bins, left = [], []
    sampled = min(count, SAMPLED_STEPS, 1 + SAMPLED_DOCUMENTS * count // len(lengths))
    for step in np.unique(np.linspace(0, count - 1, sampled).astype(np.int64)).tolist():
        values = lengths[steps[step] : steps[step + 1]]
        packed = sorted((int(values[one].sum()), int(values[one].max())) for one in pack_step(values, top))
        bins += [load for load, _ in packed]
        again = packed[:LAID_OUT_AGAIN]
        left.append((sum(load for load, _ in again), max(one for _, one in again)))
    return improve_ladder(Ladder(choose_ladder(np.array(bins), top, rungs, slack)), np.array(left))


def layout_of(lengths: NDArray[np.int64], steps: NDArray[np.int64], ladder: Ladder | None) -> Layout:
    """The layout of documents of `lengths` [documents] tokens in steps that begin at `steps` [steps + 1]; without a ladder,
    the plain path's."""
    documents, real = np.diff(steps), np.add.reduceat(lengths, steps[:-1])
    if ladder is None:
        return Layout(documents, real, real, documents, {})
    rungs = np.array(ladder.rungs)
    alone = ladder.fits_one(real)
    processed = np.where(alone, rungs[np.searchsorted(rungs, np.minimum(real, ladder.top))], 0)
    micro_batches = np.ones_like(real)
    used = Counter(processed[alone].tolist())
    for step in np.flatnonzero(~alone).tolist():
        laid_out = arrange(lengths[steps[step] : steps[step + 1]], ladder)
        taken = [tokens for _, tokens in laid_out]
        micro_batches[step], processed[step] = len(taken), sum(taken)
        documents[step] = sum(len(one) for one, _ in laid_out)
        used.update(taken)
    return Layout(micro_batches, real, processed, documents, {rung: used[rung] for rung in ladder.rungs})


def even_steps(documents: int, examples: int) -> NDArray[np.int64]:
    """Where steps of `examples` documents begin [steps + 1]; the last may be smaller."""
    return np.append(np.arange(0, documents, examples), documents)
