"""When to log, evaluate and save: transformers' strategies (its `DefaultFlowCallback`) turned into questions about a step.

`tests/train/test_cadence.py` holds both against each other.
"""

import math
from dataclasses import dataclass

from dynotune.config.keys.evaluation import EvaluationConfig
from dynotune.config.keys.logging import LoggingConfig
from dynotune.config.keys.saving import SavingConfig


@dataclass(frozen=True, slots=True)
class Every:
    """`steps`: every `interval` steps; `epoch`: when an epoch ends; `no` (and `best`): never by itself."""

    strategy: str
    interval: int
    steps_per_epoch: int
    total_steps: int
    delay: float = 0
    """Steps, or epochs with `epoch`, before it is due for the first time."""

    first: bool = False
    """Due at step 1 whatever the strategy."""

    last: bool = True
    """With `steps`: due at the run's last step too, so that what was trained last is neither unmeasured nor unsaved."""

    def due(self, step: int) -> bool:
        """Whether it is due after this step."""
        if self.first and step == 1:
            return True
        at_the_end = self.last and step == self.total_steps
        return self.strategy == "steps" and step >= self.delay and (step % self.interval == 0 or at_the_end)

    def due_at_epoch_end(self, step: int) -> bool:
        """Whether it is due when an epoch ends after this step: complete, or cut short by the end of the run."""
        return self.strategy == "epoch" and step / self.steps_per_epoch >= self.delay


def _interval(value: float, total_steps: int) -> int:
    """A value below 1 is a share of all steps, rounded up as in transformers."""
    return max(1, math.ceil(value * total_steps) if value < 1 else int(value))


def cadences(
    logging: LoggingConfig, evaluation: EvaluationConfig, saving: SavingConfig, steps_per_epoch: int, total_steps: int
) -> tuple[Every, Every, Every]:
    """When to log, evaluate and save. `save_strategy: best` saves after an evaluation that is the best so far."""
    eval_steps = evaluation.eval_steps if evaluation.eval_steps is not None else logging.logging_steps
    log = Every(
        logging.logging_strategy,
        _interval(logging.logging_steps, total_steps),
        steps_per_epoch,
        total_steps,
        first=logging.logging_first_step,
        last=False,
    )
    evaluate = Every(
        evaluation.eval_strategy,
        _interval(eval_steps, total_steps),
        steps_per_epoch,
        total_steps,
        delay=evaluation.eval_delay,
    )
    save = Every(saving.save_strategy, _interval(saving.save_steps, total_steps), steps_per_epoch, total_steps)
    return log, evaluate, save
