"""The whole run planned ahead from lengths alone: which examples make each step, and in which micro-batches.

So totals are known before the first step, and resuming is an index.
"""

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.batch import BatchConfig
from dynotune.errors import DataError
from dynotune.plan.epoch import Layout, ladder_of, layout_of
from dynotune.plan.ladder import Ladder
from dynotune.plan.layout import MicroBatch
from dynotune.plan.packing import lay_out
from dynotune.plan.sampler import epoch_order
from dynotune.plan.truncation import Spans


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer update: what it contains, and how it is executed."""

    number: int
    """1-based, as logged."""

    epoch: float
    """Epochs completed once this step is done."""

    rows: NDArray[np.int64]
    """Row indices of the step's documents, in the order of the sampler."""

    lengths: NDArray[np.int64]
    """Tokens of each of them."""

    micro_batches: list[MicroBatch]
    """How they are executed: each document stands in exactly one."""

    real_tokens: int
    label_tokens: int

    @property
    def processed_tokens(self) -> int:
        """Real tokens and padding."""
        return sum(micro_batch.tokens for micro_batch in self.micro_batches)


class Plan:
    """Steps of a run over `spans`. Deterministic: two plans of the same inputs are equal."""

    def __init__(
        self,
        spans: Spans,
        rows: NDArray[np.int64],
        config: BatchConfig,
        seed: int,
        digest: str = "",
        micro_batch_tokens: int | None = None,
    ) -> None:
        """`rows` [used rows] are the indices that may be trained on; a row without label tokens must not be there.

        digest: names the data (`Examples.digest`): under other data the same step holds other examples.
        micro_batch_tokens: how many tokens a micro-batch may hold, more where a document is longer. None is the plain path,
        one document at a time. It changes how a step is executed and never what it contains.
        """
        if not len(rows):
            raise DataError("There is nothing to train on: no row is left. The ledger above says where they went.")
        assert spans.label_tokens[rows].min() > 0
        self.digest = digest
        self.spans, self.rows, self.seed = spans, rows, config.data_seed if config.data_seed is not None else seed
        self.strategy = config.train_sampling_strategy
        self.examples_per_step = config.examples_per_step
        self.micro_batch_tokens = micro_batch_tokens
        self.rows_per_epoch = len(rows)
        if config.dataloader_drop_last:
            unit = config.global_batch_size or config.per_device_train_batch_size
            self.rows_per_epoch -= len(rows) % unit
            if not self.rows_per_epoch:
                raise DataError(
                    f"`dataloader_drop_last` leaves nothing: {len(rows)} rows do not fill one batch of {unit}."
                    " Take it out, or make the batch smaller."
                )
        self.steps_per_epoch = math.ceil(self.rows_per_epoch / self.examples_per_step)
        self.total_steps = (
            config.max_steps if config.max_steps > 0 else math.ceil(config.num_train_epochs * self.steps_per_epoch)
        )
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def executed(self, micro_batch_tokens: int | None) -> Self:
        """The same steps in micro-batches of up to so many tokens; None: plainly, one document at a time."""
        other = copy(self)
        other.micro_batch_tokens = micro_batch_tokens
        for known in ("ladder", "layout"):
            other.__dict__.pop(known, None)
        return other

    def step(self, number: int) -> Step:
        """The step of this 1-based number."""
        epoch, within = divmod(number - 1, self.steps_per_epoch)
        first = within * self.examples_per_step
        rows = self.rows[self._epoch(epoch)[first : first + self.examples_per_step]]
        lengths = self.spans.lengths_of(rows)
        return Step(
            number=number,
            epoch=number / self.steps_per_epoch,
            rows=rows,
            lengths=lengths,
            micro_batches=(
                lay_out(rows, lengths, self.ladder)
                if self.ladder
                else [MicroBatch(rows[i : i + 1], int(lengths[i])) for i in range(len(rows))]
            ),
            real_tokens=int(lengths.sum()),
            label_tokens=int(self.spans.label_tokens[rows].sum()),
        )

    def steps(self, after: int = 0) -> Iterator[Step]:
        """All steps behind step `after`."""
        for number in range(after + 1, self.total_steps + 1):
            yield self.step(number)

    @cached_property
    def ladder(self) -> Ladder | None:
        """The token counts of micro-batches, chosen from the first epoch and valid for all. None on the plain path."""
        if self.micro_batch_tokens is None:
            return None
        return ladder_of(self._first_lengths, self.examples_per_step, self.micro_batch_tokens)

    @cached_property
    def layout(self) -> Layout:
        """How the steps of the first epoch are executed."""
        return layout_of(self._first_lengths, self.examples_per_step, self.ladder)

    @cached_property
    def _first_lengths(self) -> NDArray[np.int64]:
        return self.spans.lengths_of(self.rows[self._epoch(0)])

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(len(self.rows), epoch, self.seed, self.strategy)[: self.rows_per_epoch]
        return self._order[1]

    def content(self) -> dict[str, Any]:
        """What steps contain. A run goes on only under the same; how steps are executed may change."""
        rows = self.rows[self._epoch(0)]
        lengths = self._first_lengths
        return {
            "steps": self.total_steps,
            "steps_per_epoch": self.steps_per_epoch,
            "epochs": self.total_steps / self.steps_per_epoch,
            "examples": len(self.rows),
            "examples_per_step": self.examples_per_step,
            "examples_left_out_by_drop_last": len(self.rows) - self.rows_per_epoch,
            "order": self.strategy,
            "seed": self.seed,
            "data": self.digest,
            "real_tokens_per_epoch": int(lengths.sum()),
            "label_tokens_per_epoch": int(self.spans.label_tokens[rows].sum()),
            "longest_example": int(lengths.max()),
            "median_example": float(np.median(lengths)),
        }

    def to_json(self) -> dict[str, Any]:
        """What `plan.json` in the run folder says."""
        path = "packed: documents side by side, each seeing itself alone" if self.ladder else PLAIN
        return {"path": path, **self.content(), **({"layout": self.layout.to_json()} if self.ladder else {})}


PLAIN = "plain: one document at a time, no padding"
