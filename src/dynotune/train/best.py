"""Which checkpoint is best so far, and when a run has stopped improving."""

import math
from collections.abc import Collection, Mapping

from dynotune.config.keys.evaluation import EvaluationConfig
from dynotune.errors import ConfigError
from dynotune.train.state import Progress


class BestTracker:
    """Compares evaluations by `metric_for_best_model`, with transformers' names and defaults."""

    def __init__(self, config: EvaluationConfig, progress: Progress) -> None:
        name = config.metric_for_best_model or "loss"
        self.metric = name if name.startswith("eval_") else f"eval_{name}"
        greater = config.greater_is_better
        self.greater_is_better = greater if greater is not None else not self.metric.endswith("loss")
        self.patience, self.threshold = config.early_stopping_patience, config.early_stopping_threshold
        self.progress = progress

    def check(self, metrics: Collection[str]) -> None:
        """Refuse a metric that no evaluation of this run will have. `metrics`: their names, known before the first step."""
        if self.metric not in metrics:
            raise ConfigError(
                f"Evaluations are compared by `{self.metric}` (`metric_for_best_model`, default `loss`), which this run will"
                f" not have. Write `metric_for_best_model` with one of {', '.join(metrics)}."
            )

    def update(self, metrics: Mapping[str, float]) -> bool:
        """Take in an evaluation of the current step. True if it is the best so far; what is not finite never is."""
        value, p = metrics[self.metric], self.progress
        gain = math.inf
        if not math.isfinite(value):
            gain = -math.inf
        elif p.best_metric is not None:
            gain = value - p.best_metric if self.greater_is_better else p.best_metric - value
        p.evaluations_without_gain = 0 if gain > self.threshold else p.evaluations_without_gain + 1
        if gain > 0:
            p.best_metric, p.best_step = value, p.step
        return gain > 0

    @property
    def out_of_patience(self) -> bool:
        return self.patience is not None and self.progress.evaluations_without_gain >= self.patience
