"""The whole run planned ahead from lengths alone: which examples make each step, and in which micro-batches.

So totals are known before the first step, and resuming is an index.
"""

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.batch import BatchConfig
from dynotune.errors import DataError
from dynotune.plan.content import Packing
from dynotune.plan.epoch import Layout, ladder_of, layout_of
from dynotune.plan.ladder import RUNGS, Ladder, round_down, round_up
from dynotune.plan.layout import MicroBatch
from dynotune.plan.ranked import ladder_on_ranks, layout_on_ranks
from dynotune.plan.sampler import epoch_order, sets_together
from dynotune.plan.spread import Cost
from dynotune.plan.summary import PACKED, PLAIN, figures, layout_line, lines, ranks_line
from dynotune.plan.together import lay_out_step, units_of
from dynotune.plan.trl_packing import members
from dynotune.plan.truncation import Units

MOST_LOOKED_AT = 10_000_000
"""Rows in all epochs together whose order is gone through for the largest group: beyond, a bound is taken."""


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
    """Tokens that each of them takes by itself: without its last one where that is not computed."""

    micro_batches: list[MicroBatch]
    """How this rank executes its share of them."""

    real_tokens: int
    """Of documents, as far as they are computed, on all ranks; what several documents of a micro-batch begin with counts
    once."""

    label_tokens: int
    attention: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """What attends to what (`Units.attention_of`); None: each document to itself."""

    sequence_tokens: int = 0
    """Of its documents, whole and one by one (`Units.sequence_lengths_of`); 0 where no plan has counted them."""

    elsewhere: tuple[MicroBatch, ...] = ()
    """The micro-batches of other ranks: with them each document stands in exactly one."""

    @property
    def all_micro_batches(self) -> list[MicroBatch]:
        """Of all ranks."""
        return [*self.micro_batches, *self.elsewhere]

    @property
    def processed_tokens(self) -> int:
        """Real tokens and padding, on all ranks."""
        tokens = 0
        for batches in (self.micro_batches, self.elsewhere):  # asked for several times a step while it trains
            for batch in batches:
                tokens += batch.tokens
        return tokens


class Plan:
    """Steps of a run over the documents of `spans`. Deterministic: two plans of the same inputs are equal."""

    def __init__(
        self,
        spans: Units,
        rows: NDArray[np.int64],
        config: BatchConfig,
        seed: int,
        digest: str = "",
        micro_batch_tokens: int | None = None,
        packing: Packing | None = None,
        rank: int = 0,
        world: int = 1,
        sets: NDArray[np.int64] | None = None,
    ) -> None:
        """`rows` are the documents that may be trained on: each a row with label tokens, or bin by bin under `packing`.

        digest: names the data (`Examples.digest`): under other data the same step holds other examples.
        micro_batch_tokens: how many tokens a micro-batch may hold, more where a document is longer. None is the plain path,
        one document at a time. It changes how a step is executed and never what it contains.
        rank, world: which of how many processes asks. A step's content depends on the number only where the configuration
        gives examples a device.
        sets: to which set each of `rows` belongs; the rows of a set follow each other in every epoch.
        """
        if not len(rows):
            raise DataError("There is nothing to train on: no row is left. The ledger above says where they went.")
        assert packing or spans.label_tokens[rows].min() > 0
        assert packing is None or sets is None
        self.digest, self.packing, self.sets = digest, packing, sets
        self.spans, self.rows, self.seed = spans, rows, config.data_seed if config.data_seed is not None else seed
        self.strategy = config.train_sampling_strategy
        self.rank, self.world, self.cost = rank, world, Cost()
        self.examples_per_step = config.examples_on(world)
        self.fixed_batch = config.global_batch_size is not None
        self.micro_batch_tokens = micro_batch_tokens
        self.all_rows = self.rows_per_epoch = len(rows) if packing is None else len(packing.offsets) - 1
        self._batch = config.global_batch_size or config.per_device_train_batch_size * world
        if config.dataloader_drop_last:
            self.rows_per_epoch -= self.all_rows % self._batch
            if not self.rows_per_epoch:
                raise DataError(
                    f"`dataloader_drop_last` leaves nothing: {self.all_rows} rows do not fill one batch of {self._batch}."
                    " Take it out, or make the batch smaller."
                )
        self.steps_per_epoch = math.ceil(self.rows_per_epoch / self.examples_per_step)
        self.total_steps = (
            config.max_steps if config.max_steps > 0 else math.ceil(config.num_train_epochs * self.steps_per_epoch)
        )
        self._order: tuple[int, NDArray[np.int64]] | None = None
        self._longest_elsewhere, self._rungs, self._slack = 0, RUNGS, 0.0

    def executed(
        self,
        micro_batch_tokens: int | None,
        longest: int = 0,
        cost: Cost | None = None,
        rungs: int | None = None,
        slack: float | None = None,
    ) -> Self:
        """The same steps in micro-batches of up to so many tokens; None: plainly, one document at a time.

        longest: tokens of the longest document outside the plan (an evaluation's) that its ladder must hold, too.
        cost: of a document, by which a step is spread over ranks; default the plan's own.
        rungs: of the ladder, at most; default the plan's own. slack: share of tokens that fewer may pad more;
        default the plan's own.
        """
        other = copy(self)
        other._rungs, other._slack = rungs or self._rungs, self._slack if slack is None else slack
        other.micro_batch_tokens, other._longest_elsewhere = micro_batch_tokens, longest
        other.cost = cost or self.cost
        for known in ("ladder", "layout", "first_units"):
            other.__dict__.pop(known, None)
        return other

    def of_units(self, units: Units) -> Self:
        """The same steps, whose rows take up what `units` says: the same rows, in another layout."""
        other = copy(self)
        other.spans = units
        for known in ("ladder", "layout", "first_epoch", "first_units", "longest"):
            other.__dict__.pop(known, None)
        return other

    def epochs_at(self, step: int) -> float:
        """Passes over the data completed with this step, in batches of all devices as transformers counts them: an epoch's
        last step may hold fewer than the others."""
        epochs, steps = divmod(step, self.steps_per_epoch)
        return epochs + steps * (self.examples_per_step // self._batch) / math.ceil(self.rows_per_epoch / self._batch)

    def step(self, number: int) -> Step:
        """The step of this 1-based number."""
        epoch, within = divmod(number - 1, self.steps_per_epoch)
        first = within * self.examples_per_step
        rows, _ = self._documents(self._epoch(epoch)[first : first + self.examples_per_step])
        lengths = self.spans.lengths_of(rows)
        every = lay_out_step(self.spans, rows, self.ladder, self.world, self.cost)
        return Step(
            number=number,
            epoch=self.epochs_at(number),
            rows=rows,
            lengths=lengths,
            micro_batches=every[self.rank],
            real_tokens=sum(batch.real_tokens for own in every for batch in own),
            label_tokens=int(self.spans.label_tokens[rows].sum()),
            attention=self._attention([batch.rows for own in every for batch in own]),
            sequence_tokens=int(self.spans.sequence_lengths_of(rows).sum()),
            elsewhere=tuple(one for rank, own in enumerate(every) if rank != self.rank for one in own),
        )

    def _attention(self, together: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What attends to what in micro-batches that hold these rows."""
        once, again = zip(*(self.spans.attention_of(rows) for rows in together), strict=True)
        return np.concatenate(once), np.concatenate(again)

    def steps(self, after: int = 0) -> Iterator[Step]:
        """All steps behind step `after`."""
        for number in range(after + 1, self.total_steps + 1):
            yield self.step(number)

    @cached_property
    def ladder(self) -> Ladder | None:
        """The token counts of micro-batches, chosen from the first epoch and valid for all. None on the plain path."""
        if self.micro_batch_tokens is None:
            return None
        lengths, steps = self.first_units
        tokens = self._row_tokens()
        most = int(np.partition(tokens, -min(self.examples_per_step, len(tokens)))[-self.examples_per_step :].sum())
        longest = max(self.longest, self._longest_elsewhere)
        if self.world > 1:
            return ladder_on_ranks(
                lengths, steps, self.micro_batch_tokens, most, longest, self.world, self.cost, self._rungs, self._slack
            )
        return ladder_of(lengths, steps, self.micro_batch_tokens, most, longest, self._rungs, self._slack)

    @cached_property
    def layout(self) -> Layout:
        """How the steps of the first epoch are executed."""
        return self._layout_until(self.steps_per_epoch)

    @cached_property
    def layout_of_run(self) -> Layout:
        """How the run's steps of the first epoch are executed; without the rungs that none takes where it has no others."""
        if self.total_steps > self.steps_per_epoch:
            return self.layout
        found = self._layout_until(self.total_steps)
        return replace(found, used={rung: count for rung, count in found.used.items() if count})

    def _layout_until(self, step: int) -> Layout:
        """Of the first epoch up to this step."""
        lengths, steps = self.first_units
        steps = steps[: step + 1]
        lengths = lengths[: steps[-1]]
        if self.world > 1:
            return layout_on_ranks(lengths, steps, self.ladder, self.world, self.cost)
        return layout_of(lengths, steps, self.ladder)

    @cached_property
    def first_epoch(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Its documents in order, their lengths, and the offsets [steps + 1] at which steps begin among them."""
        documents, steps = self._in_steps(0)
        return documents, self.spans.lengths_of(documents), steps

    @cached_property
    def first_units(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of what is laid out in the first epoch: documents, or several that stand together. Then where steps begin
        among them [steps + 1]."""
        documents, _, steps = self.first_epoch
        most = self.micro_batch_tokens
        if most is not None:
            most = max(round_down(most), round_up(max(self.longest, self._longest_elsewhere)))
        return units_of(self.spans, documents, steps, most)

    @cached_property
    def longest(self) -> int:
        """Tokens that a micro-batch must hold: of the longest document, or of the most that stand together undivided."""
        lengths = self.spans.lengths_of(self.rows)
        if self.spans.together(self.rows[:1], None) is None:
            return int(lengths.max())
        epochs = 1 if self.strategy == "sequential" else math.ceil(self.total_steps / self.steps_per_epoch)
        if epochs * len(lengths) > MOST_LOOKED_AT:  # the longest all in one, which is more than any order makes
            return self.spans.largest(self.rows[np.argsort(-lengths)], np.array([0, len(lengths)]))
        return max(self.spans.largest(*self._in_steps(epoch)) for epoch in range(epochs))

    @property
    def tokens_a_step(self) -> float:
        """Of documents, on average, on all ranks."""
        return int(self.spans.lengths_of(self.rows).sum()) / self.all_rows * self.examples_per_step

    @property
    def label_share(self) -> float:
        """Label tokens of the first epoch over tokens that are computed of its documents, a common beginning for each."""
        documents, _, _ = self.first_epoch
        return int(self.spans.label_tokens[documents].sum()) / int(self.spans.attention_of(documents)[0].sum())

    @property
    def longest_document(self) -> int:
        """Tokens of the longest sequence that attends to itself."""
        return int(self.spans.sequence_lengths_of(self.rows).max())

    def _in_steps(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The documents of an epoch in order, and the offsets [steps + 1] at which steps begin among them."""
        documents, offsets = self._documents(self._epoch(epoch))
        return documents, offsets[np.append(np.arange(0, len(offsets) - 1, self.examples_per_step), len(offsets) - 1)]

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        """The order of an epoch's rows."""
        if self._order is None or self._order[0] != epoch:
            order = epoch_order(self.all_rows, epoch, self.seed, self.strategy)
            if self.sets is not None:
                order = sets_together(order, self.sets)
            self._order = epoch, order[: self.rows_per_epoch]
        return self._order[1]

    def _documents(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The documents of these rows, and the offsets [rows + 1] at which each row begins among them."""
        if self.packing is None:
            return self.rows[rows], np.arange(len(rows) + 1)
        return members(self.rows, self.packing.offsets, rows)

    def _row_tokens(self) -> NDArray[np.int64]:
        """Tokens of every row."""
        lengths = self.spans.lengths_of(self.rows)
        return lengths if self.packing is None else np.add.reduceat(lengths, self.packing.offsets[:-1])

    def content(self) -> dict[str, Any]:
        """What steps contain. A run goes on only under the same; how steps are executed may change: so tokens are those of
        whole documents, whatever two of them share and however much of them is computed."""
        documents, _, _ = self.first_epoch
        lengths = self.spans.sequence_lengths_of(documents)
        content: dict[str, Any] = {
            "steps": self.total_steps,
            "steps_per_epoch": self.steps_per_epoch,
            "epochs": self.epochs_at(self.total_steps),
            "examples": self.all_rows,
            "examples_per_step": self.examples_per_step,
            "examples_left_out_by_drop_last": self.all_rows - self.rows_per_epoch,
            "order": self.strategy if self.sets is None else f"{self.strategy}, those with one prompt together",
            "seed": self.seed,
            "data": self.digest,
            "real_tokens_per_epoch": int(lengths.sum()),
            "label_tokens_per_epoch": int(self.spans.label_tokens[documents].sum()),
            "longest_example": int(lengths.max()),
            "median_example": float(np.median(lengths)),
        }
        if self.packing is not None:
            packing = {"strategy": self.packing.strategy, "max_length": self.packing.max_length}
            content["packing"] = {**packing, "documents": len(self.rows), "kind": "behavioural"}
        return content

    def to_json(self) -> dict[str, Any]:
        """What `plan.json` in the run folder says."""
        return {"path": PLAIN if self.ladder is None else PACKED, **self.content(), "layout": figures(self)}

    def summary(self) -> list[str]:
        """What steps contain, in a few sentences for the terminal."""
        return lines(self)

    def layout_summary(self) -> str:
        """How a packed plan is executed, in one line."""
        return layout_line(self)

    def ranks_summary(self) -> str:
        """How evenly several ranks share it, in one line."""
        return ranks_line(self)
