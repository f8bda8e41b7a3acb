"""What the loop works with, and what of it cannot work together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dynotune.errors import ConfigError
from dynotune.execution.feed import Feed
from dynotune.execution.path import ExecutionPath
from dynotune.objectives.counted import Counted
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.train.best import BestTracker
from dynotune.train.cadence import Every
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.unwritten import Unwritten
from dynotune.train.engagement import Engagement
from dynotune.train.evaluate import Evaluator
from dynotune.train.events import Events
from dynotune.train.faults.memory import Memory
from dynotune.train.faults.nonfinite import NonFinite
from dynotune.train.meter import StepRecord
from dynotune.train.optimizer import Update
from dynotune.train.orders import Nobody, Orders, Outside
from dynotune.train.state import Trainee
from dynotune.train.telling.journal import Journal
from dynotune.train.telling.notices import Heard, Notices
from dynotune.train.telling.progress import ProgressDisplay
from dynotune.train.telling.surroundings import Surroundings
from dynotune.train.telling.watch import Watch


@dataclass(slots=True)
class Run:
    """Everything the loop works with, each part made elsewhere."""

    plan: Plan
    path: ExecutionPath
    feed: Feed
    trainee: Trainee
    objective: Counted
    update: Update
    autocast: Callable[[], Any]
    device: torch.device
    log_every: Every
    evaluate_every: Every
    save_every: Every
    evaluator: Evaluator | None
    best: BestTracker | None
    """Tracks the best evaluation; None where nothing asks for it."""

    save_best: bool
    """Save after every evaluation that is the best so far, so that the best model is never one that was not kept."""

    checkpoints: Checkpoints
    journal: Journal
    events: Events
    display: ProgressDisplay
    memory: Memory
    nonfinite: NonFinite
    engagement: Engagement
    surroundings: Surroundings
    watch: Watch
    notices: Notices
    hear: Callable[[Sequence[Heard]], None] = lambda heard: None
    """Say what other ranks saw."""

    wall_before: float = 0.0
    """Seconds of the processes before this one, as the run's account has them."""

    set_up: Mapping[str, float] = field(default_factory=dict)
    """Seconds of this process before its first step, by what was done."""

    eval_on_start: bool = False
    keep_samples: Callable[[int, list[dict[str, str]]], None] = lambda step, rows: None
    on_save: Callable[[Path], None] = lambda checkpoint: None
    ranks: Ranks = field(default_factory=Ranks)
    outside: Outside = field(default_factory=Nobody)
    held: Orders = field(default_factory=Orders)
    """What was asked for while a step was taken that is to be taken again."""

    bad_step: StepRecord | None = None
    """The step that was not finite and ends the run."""

    settle: Callable[[], None] = lambda: None
    """Have the rows of metrics that were written on the disk."""

    unwritten: Unwritten = field(default_factory=Unwritten)
    saved_step: int | None = None
    """The step of the newest checkpoint that this process wrote."""

    leaving: bool = False
    """Whether the run was asked from outside to end after the step just taken."""

    def __post_init__(self) -> None:
        """Refuse, before the first step, what could only fail at the first evaluation."""
        self.journal.checkpoints = self.checkpoints
        if self.evaluator is not None and self.best is None and self.events.config.metric_for_best_model is not None:
            # As in transformers: a metric that is named is tracked, for callbacks and for a schedule that watches it.
            self.best = BestTracker(self.events.config, self.trainee.progress)
        if self.evaluator is not None and self.best is not None:
            self.best.check(self.evaluator.metrics)
            schedule = self.trainee.schedule
            if isinstance(schedule, ReduceLROnPlateau) and (schedule.mode == "max") != self.best.greater_is_better:
                better = "larger" if self.best.greater_is_better else "smaller"
                raise ConfigError(
                    f"`lr_scheduler_type: reduce_lr_on_plateau` watches {self.best.metric}, of which {better} is better, in"
                    f" mode `{schedule.mode}`. Write `lr_scheduler_kwargs: {{mode:"
                    f" {'max' if self.best.greater_is_better else 'min'}}}`, or correct `greater_is_better`."
                )
