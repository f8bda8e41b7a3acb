"""The layout of a whole epoch: the ladder that fits it, and how its steps are executed."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.plan.ladder import RUNGS, Ladder, choose_ladder, improve_ladder, round_down, round_up
from dynotune.plan.packing import LAID_OUT_AGAIN, arrange, pack_step

SAMPLED_STEPS = 2048
"""Steps by which a ladder is chosen, spread evenly over the epoch: more do not change it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the steps of an epoch are executed. Arrays are [steps]."""

    micro_batches: NDArray[np.int64]
    real_tokens: NDArray[np.int64]
    processed_tokens: NDArray[np.int64]
    documents: NDArray[np.int64]
    used: dict[int, int]
    """Rung to the number of micro-batches that take it. Empty on the plain path."""

    @property
    def fill(self) -> float:
        """Real tokens over processed tokens."""
        return float(self.real_tokens.sum() / self.processed_tokens.sum())

    def to_json(self) -> dict[str, Any]:
        return {
            "micro_batches_per_epoch": int(self.micro_batches.sum()),
            "micro_batches_per_step": {
                "min": int(self.micro_batches.min()),
                "median": float(np.median(self.micro_batches)),
                "max": int(self.micro_batches.max()),
            },
            "documents_per_micro_batch": float(self.documents.sum() / self.micro_batches.sum()),
            "processed_tokens_per_epoch": int(self.processed_tokens.sum()),
            "padding_tokens_per_epoch": int((self.processed_tokens - self.real_tokens).sum()),
            "fill": self.fill,
            "ladder": {str(rung): count for rung, count in self.used.items()},
        }


def ladder_of(lengths: NDArray[np.int64], examples: int, capacity: int, rungs: int = RUNGS) -> Ladder:
    """The ladder for documents of `lengths` [documents] tokens, taken `examples` a step in any order.

    Its top is `capacity`, or the longest document where that is longer; less where no step can hold as much.
    """
    longest = np.partition(lengths, -min(examples, len(lengths)))[-examples:]
    top = max(min(round_down(capacity), round_up(int(longest.sum()))), round_up(int(longest.max())))
    steps = -(-len(lengths) // examples)
    picked = np.unique(np.linspace(0, steps - 1, min(steps, SAMPLED_STEPS)).astype(np.int64))
    bins, left = [], []
    for step in picked.tolist():
        values = lengths[step * examples : (step + 1) * examples]
        packed = sorted((int(values[one].sum()), int(values[one].max())) for one in pack_step(values, top))
        bins += [load for load, _ in packed]
        again = packed[:LAID_OUT_AGAIN]
        left.append((sum(load for load, _ in again), max(longest for _, longest in again)))
    return improve_ladder(Ladder(choose_ladder(np.array(bins), top, rungs)), np.array(left))


def layout_of(lengths: NDArray[np.int64], examples: int, ladder: Ladder | None) -> Layout:
    """The layout of documents of `lengths` [documents] tokens, `examples` a step in this order; without a ladder, plain."""
    starts = np.arange(0, len(lengths), examples)
    documents = np.diff(np.append(starts, len(lengths)))
    real = np.add.reduceat(lengths, starts)
    if ladder is None:
        return Layout(documents, real, real, documents, {})
    alone = ladder.fits_one(real)
    rung_of_step = np.array(ladder.rungs)[np.searchsorted(ladder.rungs, np.minimum(real, ladder.top))]
    micro_batches, processed = np.ones_like(real), np.where(alone, rung_of_step, 0)
    used = Counter(dict(zip(*(a.tolist() for a in np.unique(rung_of_step[alone], return_counts=True)), strict=True)))
    for step in np.flatnonzero(~alone).tolist():
        rungs = [tokens for _, tokens in arrange(lengths[starts[step] : starts[step] + examples], ladder)]
        micro_batches[step], processed[step] = len(rungs), sum(rungs)
        used.update(rungs)
    return Layout(micro_batches, real, processed, documents, {rung: used[rung] for rung in ladder.rungs})
