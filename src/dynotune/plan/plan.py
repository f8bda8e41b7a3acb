"""The whole run planned ahead from lengths alone: which examples make each step, and in which micro-batches.

So totals are known before the first step, and resuming is an index.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.batch import BatchConfig
from dynotune.errors import DataError
from dynotune.plan.layout import MicroBatch
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

    def __init__(self, spans: Spans, rows: NDArray[np.int64], config: BatchConfig, seed: int, digest: str = "") -> None:
        """`rows` [used rows] are the indices that may be trained on; a row without label tokens must not be there.
        `digest` names the data (`Examples.digest`): under other data the same step holds other examples."""
        if not len(rows):
            raise DataError("There is nothing to train on: no row is left. The ledger above says where they went.")
        assert spans.label_tokens[rows].min() > 0
        self.digest = digest
        self.spans, self.rows, self.seed = spans, rows, config.data_seed if config.data_seed is not None else seed
        self.strategy = config.train_sampling_strategy
        self.examples_per_step = config.examples_per_step
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

    def step(self, number: int) -> Step:
        """The step of this 1-based number."""
        epoch, within = divmod(number - 1, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(len(self.rows), epoch, self.seed, self.strategy)[: self.rows_per_epoch]
        first = within * self.examples_per_step
        rows = self.rows[self._order[1][first : first + self.examples_per_step]]
        lengths = self.spans.lengths[rows]
        return Step(
            number=number,
            epoch=number / self.steps_per_epoch,
            rows=rows,
            lengths=lengths,
            # the plain path: one document at a time
            micro_batches=[MicroBatch(rows[i : i + 1], int(lengths[i])) for i in range(len(rows))],
            real_tokens=int(lengths.sum()),
            label_tokens=int(self.spans.label_tokens[rows].sum()),
        )

    def steps(self, after: int = 0) -> Iterator[Step]:
        """All steps behind step `after`."""
        for number in range(after + 1, self.total_steps + 1):
            yield self.step(number)

    def to_json(self) -> dict[str, Any]:
        """What `plan.json` in the run folder says."""
        first_epoch = self.rows[epoch_order(len(self.rows), 0, self.seed, self.strategy)[: self.rows_per_epoch]]
        lengths, labels = self.spans.lengths[first_epoch], self.spans.label_tokens[first_epoch]
        return {
            "path": "plain: one document at a time, no padding",
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
            "label_tokens_per_epoch": int(labels.sum()),
            "longest_example": int(lengths.max()),
            "median_example": float(np.median(lengths)),
        }
