"""Callbacks: transformers' own `TrainerCallback`, so that what people have written for TRL runs here unchanged."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dynotune.errors import ConfigError
from dynotune.plan.plan import Plan
from dynotune.train.checkpoint import Trainee

if TYPE_CHECKING:
    from transformers import TrainerCallback


class Events:
    """Calls the callbacks with transformers' arguments, and collects what they ask for.

    `args` is the configuration: it has TRL's names. Callbacks that read a field which Dynotune superseded or refused get
    an AttributeError that names it.
    """

    def __init__(
        self, callbacks: "Sequence[TrainerCallback | type[TrainerCallback]]", config: Any, trainee: Trainee, plan: Plan
    ) -> None:
        from transformers import TrainerCallback, TrainerControl, TrainerState

        # A class instead of an instance is accepted, as in transformers.
        self.callbacks = [callback() if isinstance(callback, type) else callback for callback in callbacks]
        for callback in self.callbacks:
            if not isinstance(callback, TrainerCallback):
                raise ConfigError(
                    f"callbacks: {callback!r} is not a transformers.TrainerCallback. Derive it from that class; only the"
                    " methods that you need have to be written."
                )
        self.config, self.trainee = config, trainee
        self.state = TrainerState(
            max_steps=plan.total_steps,
            num_train_epochs=max(1, round(plan.total_steps / plan.steps_per_epoch)),
            logging_steps=1,
            train_batch_size=plan.examples_per_step,
            is_local_process_zero=True,
            is_world_process_zero=True,
        )
        self.control = TrainerControl()

    def call(self, event: str, step: int, epoch: float, **more: Any) -> None:
        """Run one of `train_begin`, `epoch_end`, `step_begin`, `step_end`, `log`, `evaluate`, `save`, `train_end`."""
        self.state.global_step, self.state.epoch = step, epoch
        self.state.best_metric = self.trainee.progress.best_metric
        parts = {
            "model": self.trainee.model,
            "processing_class": self.trainee.tokenizer,
            "optimizer": self.trainee.optimizer,
            "lr_scheduler": self.trainee.schedule,
        }
        for callback in self.callbacks:
            result = getattr(callback, f"on_{event}")(self.config, self.state, self.control, **parts, **more)
            self.control = result if result is not None else self.control

    def log(self, step: int, epoch: float, metrics: Mapping[str, Any]) -> None:
        row = dict(metrics)
        self.state.log_history.append({**row, "step": step})
        self.call("log", step, epoch, logs=row)

    def asked(self, what: str) -> bool:
        """Whether a callback asked to `log`, `evaluate` or `save` now; the request is taken back by asking."""
        flag = f"should_{what}"
        wanted = bool(getattr(self.control, flag))
        setattr(self.control, flag, False)
        return wanted

    @property
    def stop(self) -> bool:
        return bool(self.control.should_training_stop)
