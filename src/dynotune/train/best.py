"""Which checkpoint is best so far, and when a run has stopped improving."""

from collections.abc import Mapping

from dynotune.config.keys.evaluation import EvaluationConfig
from dynotune.errors import ConfigError
from dynotune.train.checkpoint import Progress


class BestTracker:
    """Compares evaluations by `metric_for_best_model`, with transformers' names and defaults."""

    def __init__(self, config: EvaluationConfig, progress: Progress) -> None:
        name = config.metric_for_best_model or "loss"
        self.metric = name if name.startswith("eval_") else f"eval_{name}"
        greater = config.greater_is_better
        self.sign = 1.0 if (greater if greater is not None else not self.metric.endswith("loss")) else -1.0
        self.patience, self.threshold = config.early_stopping_patience, config.early_stopping_threshold
        self.progress = progress

    def update(self, metrics: Mapping[str, float]) -> bool:
        """Take in an evaluation of the current step. True if it is the best so far."""
        if self.metric not in metrics:
            raise ConfigError(
                f"`metric_for_best_model: {self.metric}` is none of the evaluation's metrics: {', '.join(sorted(metrics))}."
            )
        value, p = metrics[self.metric], self.progress
        better = p.best_metric is None or self.sign * value > self.sign * p.best_metric
        enough = p.best_metric is None or self.sign * (value - p.best_metric) > self.threshold
        p.evaluations_without_gain = 0 if enough else p.evaluations_without_gain + 1
        if better:
            p.best_metric, p.best_step = value, p.step
        return better

    @property
    def out_of_patience(self) -> bool:
        return self.patience is not None and self.progress.evaluations_without_gain >= self.patience
