"""Callbacks: transformers' own `TrainerCallback`, so that what people have written for TRL runs here too.

The same events come in the same order with the same `state.global_step`, and requests (`control.should_*`) are carried
out where transformers carries them out. `docs/metrics.md`, "Callbacks", lists what differs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.train.cadence import cadences
from dynotune.train.state import Trainee

if TYPE_CHECKING:
    from transformers import TrainerCallback

# What transformers' CallbackHandler takes back before it calls an event.
TAKEN_BACK = {
    "train_begin": ("training_stop",),
    "epoch_begin": ("epoch_stop",),
    "step_begin": ("log", "evaluate", "save"),
    "log": ("log",),
    "evaluate": ("evaluate",),
    "save": ("save",),
}


class Events:
    """Calls the callbacks with transformers' arguments, and holds what they ask for.

    `args` is the configuration: it has TRL's names, and what transformers fills in for the watched metric is filled in.
    Callbacks that read a field which Dynotune superseded or refused get an AttributeError that names it.
    """

    def __init__(
        self,
        callbacks: "Sequence[TrainerCallback | type[TrainerCallback]]",
        config: WholeConfig,
        trainee: Trainee,
        plan: Plan,
        ranks: Ranks | None = None,
    ) -> None:
        from transformers import TrainerControl, TrainerState

        # A class instead of an instance is accepted, as in transformers.
        self.callbacks = [callback() if isinstance(callback, type) else callback for callback in callbacks]
        for callback in self.callbacks:
            _check(callback, config)
        self.trainee = trainee
        metric = config.metric_for_best_model
        if metric is None and (config.load_best_model_at_end or config.lr_scheduler_type == "reduce_lr_on_plateau"):
            metric = "loss"
        greater = config.greater_is_better
        if greater is None and metric is not None:
            greater = not metric.endswith("loss")
        self.config = config.model_copy(update={"metric_for_best_model": metric, "greater_is_better": greater})
        log, evaluate, save = cadences(config, config, config, plan.steps_per_epoch, plan.total_steps)
        self.state = TrainerState(
            max_steps=plan.total_steps,
            num_train_epochs=-(-plan.total_steps // plan.steps_per_epoch),
            logging_steps=log.interval,
            eval_steps=evaluate.interval,
            save_steps=save.interval,
            train_batch_size=plan.examples_per_step,
            is_local_process_zero=ranks is None or ranks.local_rank == 0,
            is_world_process_zero=ranks is None or ranks.is_first,
        )
        self.control = TrainerControl()
        if self.callbacks:
            # From the optimizer itself: between clipping and the step, and before the gradient is cleared.
            trainee.optimizer.register_step_pre_hook(lambda *_: self._call("pre_optimizer_step"))
            trainee.optimizer.register_step_post_hook(lambda *_: self._call("optimizer_step"))

    @property
    def awaits_checkpoints(self) -> bool:
        """Whether a callback is to be called when a checkpoint is complete."""
        from transformers import TrainerCallback

        return any(type(callback).on_save is not TrainerCallback.on_save for callback in self.callbacks)

    def call(self, event: str, step: int, epoch: float, **more: Any) -> None:
        """Run `on_EVENT` of every callback, with `step` updates and `epoch` epochs completed."""
        self.state.global_step, self.state.epoch = step, epoch
        progress = self.trainee.progress
        self.state.best_metric, self.state.best_global_step = progress.best_metric, progress.best_step
        for what in TAKEN_BACK.get(event, ()):
            setattr(self.control, f"should_{what}", False)
        self._call(event, **more)

    def _call(self, event: str, **more: Any) -> None:
        parts = {
            "model": self.trainee.model,
            "processing_class": self.trainee.tokenizer,
            "optimizer": self.trainee.optimizer,
            "lr_scheduler": self.trainee.schedule,
            # Named, because callbacks may have them in their signature; there is none to hand out.
            "train_dataloader": None,
            "eval_dataloader": None,
        }
        for callback in self.callbacks:
            result = getattr(callback, f"on_{event}")(self.config, self.state, self.control, **parts, **more)
            self.control = result if result is not None else self.control

    def agree(self, ranks: Ranks) -> None:
        """What any rank's callbacks ask for is asked for on all. Where they do so is the same on every rank but for
        `on_log`, which is called when the device's figures have arrived."""
        if self.callbacks:
            what = ("log", "evaluate", "save", "epoch_stop", "training_stop")
            for one, asked in zip(what, ranks.agree(*map(self.asked, what)), strict=True):
                setattr(self.control, f"should_{one}", asked)

    def remember(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """On resume: what earlier processes of this run logged, the rows of metrics.jsonl."""
        self.state.log_history = [dict(row) for row in rows]

    def log(self, step: int, epoch: float, metrics: Mapping[str, Any]) -> None:
        row = dict(metrics)
        self.state.log_history.append({**row, "step": step})
        self.call("log", step, epoch, logs=row)

    def ask(self, what: str, due: bool) -> None:
        """Ask for `log`, `evaluate` or `save` where it is due. Before the callbacks are called, so that they may differ."""
        if due:
            setattr(self.control, f"should_{what}", True)

    def asked(self, what: str) -> bool:
        """Whether `log`, `evaluate`, `save`, `epoch_stop` or `training_stop` is asked for now."""
        return bool(getattr(self.control, f"should_{what}"))

    def take_back(self, what: str) -> None:
        setattr(self.control, f"should_{what}", False)

    @property
    def stop(self) -> bool:
        return self.asked("training_stop")


def _check(callback: Any, config: WholeConfig) -> None:
    from transformers import TrainerCallback

    if not isinstance(callback, TrainerCallback):
        raise ConfigError(
            f"callbacks: {callback!r} is not a transformers.TrainerCallback. Derive it from that class; only the"
            " methods that you need have to be written."
        )
    if config.push_to_hub and type(callback).on_push_begin is not TrainerCallback.on_push_begin:
        raise ConfigError(
            f"callbacks: {type(callback).__name__} has `on_push_begin`, which is not called: pushes are made apart from the"
            " loop. Do its work in `on_save`, or take `push_to_hub` out."
        )
