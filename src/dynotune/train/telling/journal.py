"""Turns windows of steps into rows of metrics.jsonl, and watches that every step was finite."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynotune.data.rows import Place
from dynotune.measure.totals import Totals
from dynotune.measure.utilisation import Utilisation
from dynotune.measure.wall import Kind, add, goodput, share, times, wall
from dynotune.measure.words import DEFINITIONS, WARM_UP_STEPS, Counts
from dynotune.plan.plan import Step
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.faults.limits import Limits, in_a_row
from dynotune.train.meter import StepRecord, WindowRecord
from dynotune.train.state import DoneStep, OpenRow, Progress
from dynotune.train.telling.own_cost import OwnCost
from dynotune.train.telling.surroundings import Surroundings

Row = dict[str, Any]


class Journal:
    """Accumulates windows until a log is due, then hands a row to the listeners (file, progress display, trackers)."""

    def __init__(
        self,
        sums: Sequence[str],
        progress: Progress,
        places: Sequence[Place],
        device: torch.device,
        limits: Limits,
        listeners: Sequence[Callable[[Row], None]],
        utilisation: Utilisation | None = None,
    ) -> None:
        """sums: names of what the objective sums."""
        self.sums, self.progress, self.places, self.device = sums, progress, places, device
        self.limits, self.listeners = limits, listeners
        self.utilisation = utilisation or Utilisation(why_not="it was not asked for")
        self.steps_here = 0
        """Steps that this process took: a resumed one warms up again."""

        self.around = Surroundings(device)
        """What is known of the machine, for the row that is written."""

        self.of_ranks: Callable[[Row], Row] = lambda row: {}
        """What is known of others' rows, for the row that is written."""

        self.callbacks: Callable[[Row], None] = lambda row: None
        """Whoever gets a row last, and whose time is no cost of measuring: the user's."""

        self.own = OwnCost()
        """What measuring took of the host."""

        self.checkpoints: Checkpoints | None = None
        """Where the run saves, so that an error can name what to go on from."""

    def take(self, window: WindowRecord) -> StepRecord | None:
        """Count a window, report steps that were not finite, and write a row where one is due.

        Returns the step that ends the run, if one does: what lies behind it does not count.
        """
        began = time.thread_time()
        progress = self.progress
        measured, open_row, ends, finite = Totals(), progress.open_row, None, list[Step]()
        for record in window.steps:
            if record.finite:
                open_row.steps.append(self._done(record))
                finite.append(record.step)
                progress.loss_sum += record.loss
            elif self._is_one_too_many(record):
                ends = record
                break
            else:
                self._nonfinite(record)
                measured.add_lost(Counts.of(record.step))
                progress.skipped_steps.append(record.step.number)
        counts = Counts.of_steps(finite)
        measured.add_step(counts, steps=len(finite))
        progress.tokens += counts.sequence_tokens  # as TRL counts them
        progress.label_tokens += counts.label_tokens
        progress.examples += counts.examples
        progress.finite_steps += len(finite)
        measured.add_flops(self.utilisation.of_steps(finite))
        open_row.seconds += window.seconds
        open_row.taken += len(window.steps)
        for account in (open_row.account, progress.account):
            add(account, window.account)
        self.own.add(window.own_seconds + time.thread_time() - began, len(window.steps))
        progress.train_seconds += window.seconds
        measured.add_time(window.seconds, self.utilisation.available_flops(window.seconds))
        for totals in (open_row.totals, progress.totals, *self._steady()):
            totals.add(measured)
        self.steps_here += len(window.steps)
        if window.log or ends is not None:
            self.flush()
        if ends is not None:
            self._nonfinite(ends)
        return ends

    def _done(self, record: StepRecord) -> DoneStep:
        step = record.step
        return DoneStep(
            step.number,
            step.epoch,
            step.label_tokens,
            record.learning_rate,
            record.loss,
            record.grad_norm,
            record.sums,
            record.counts,
        )

    def _is_one_too_many(self, record: StepRecord) -> bool:
        skipped, number = self.progress.skipped_steps, record.step.number
        return self.limits.exceeded(in_a_row(skipped, number - 1) + 1, len(skipped) + 1)

    def flush(self) -> None:
        """Write the row of what has been taken since the last one."""
        if self.progress.open_row.steps:
            self.write(self._row())
            self.progress.open_row = OpenRow()

    def _steady(self) -> list[Totals]:
        return [self.progress.steady] if self.steps_here >= WARM_UP_STEPS else []

    def _row(self) -> Row:
        """`loss` is the mean of the steps' losses, as in transformers; what the objective sums is a mean over all steps of
        what it counts: token metrics over label tokens."""
        began = time.thread_time()
        since = self.progress.open_row
        last, labels = since.steps[-1], sum(done.label_tokens for done in since.steps)
        row: Row = {
            "step": last.number,
            "epoch": round(last.epoch, 6),
            "loss": math.fsum(done.loss for done in since.steps) / len(since.steps),
            "grad_norm": last.grad_norm,
            "learning_rate": last.learning_rate,
        }
        for i, name in enumerate(self.sums):
            row[name] = math.fsum(done.sums[i] for done in since.steps) / sum(done.counts[i] for done in since.steps)
        speed = since.totals.figures()
        rate = speed["tokens_per_second"]
        row |= {
            "num_tokens": self.progress.tokens,
            "num_label_tokens": self.progress.label_tokens,
            "num_examples": self.progress.examples,
            "label_tokens": labels,
            **speed,
            "tokens_per_second_per_device": None if rate is None else rate / self.utilisation.devices,
            "seconds_per_step": since.seconds / since.taken,
            "train_seconds": self.progress.train_seconds,
            "wall_seconds": wall(since.account),
            **times(since.account),
            "goodput": goodput(self.progress.account),
            "data_wait": share(since.account, Kind.DATA_WAIT),
        }
        self.own.hear()
        row |= self.around.row()
        row |= self.of_ranks(row)
        self.own.leave_out()
        self.own.add(time.thread_time() - began)
        row["meter_microseconds_per_step"] = self.own.since_the_last_row()
        return row

    def write(self, row: Row) -> None:
        """Hand a row to everyone who listens, with the version of what its figures mean."""
        began = time.thread_time()
        self.own.hear()
        row = {**row, "definitions": DEFINITIONS}
        for listener in self.listeners:
            listener(row)
        self.own.leave_out()
        self.own.add(time.thread_time() - began)
        self.callbacks(row)

    def _nonfinite(self, record: StepRecord) -> None:
        """The row of a step that was kept from the weights."""
        places = [str(self.places[i]) for i in record.step.rows]
        what = f"loss {record.loss}, gradient norm {record.grad_norm}"
        number = record.step.number
        self.write({"step": number, "epoch": round(record.step.epoch, 6), "nonfinite": what, "examples": places})

    def what_to_do(self, number: int) -> str:
        """Why a step that was not finite ended the run, and what to change."""
        if self.limits.stops_at_first:
            return (
                "Look at the examples, lower the learning rate, or set `on_nonfinite_step: skip` to leave such steps out and"
                " go on."
            )
        skipped = self.progress.skipped_steps
        return (
            f"{len(skipped)} steps were left out before it, {in_a_row(skipped, number - 1)} of them right before:"
            f" `max_nonfinite_steps: {self.limits.in_all}` or `max_consecutive_nonfinite_steps: {self.limits.in_a_row}` is"
            " reached. Lower the learning rate, or look at the examples of these steps in metrics.jsonl."
        )

    def where_to_go_on(self, step: int) -> str:
        """Names the newest checkpoint up to `step` from which the run can be resumed."""
        if self.checkpoints is not None and not self.checkpoints.only_model:
            before = [path for path in self.checkpoints.all() if int(path.name.removeprefix("step-")) <= step]
            if before:
                return f"Go on from the newest checkpoint before it with `resume_from_checkpoint: {before[-1]}`."
        return "No checkpoint before it can be resumed: the run starts again."
