"""When to log, evaluate and save: transformers' strategies turned into questions about a step."""

import math
from dataclasses import dataclass

from dynotune.config.keys.evaluation import EvaluationConfig
from dynotune.config.keys.logging import LoggingConfig
from dynotune.config.keys.saving import SavingConfig


@dataclass(frozen=True, slots=True)
class Every:
    """`steps`: every `interval` steps; `epoch`: when an epoch is complete; `no`: never."""

    strategy: str
    interval: int
    steps_per_epoch: int
    total_steps: int
    delay: float = 0
    first: bool = False

    def due(self, step: int) -> bool:
        """Whether it is due after this step."""
        if self.first and step == 1:
            return True
        if self.strategy == "steps":
            return step % self.interval == 0 and step >= self.delay
        if self.strategy == "epoch":
            # The last step ends an epoch even where `max_steps` cuts it short, as in transformers.
            return (step % self.steps_per_epoch == 0 or step == self.total_steps) and (
                step / self.steps_per_epoch >= self.delay
            )
        return False


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
        first=logging.logging_first_step and logging.logging_strategy != "no",
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
