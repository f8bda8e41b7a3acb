"""Optimizers and schedules by transformers' names, and the update: clip, mask what is not finite, step."""

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from dynotune.config.checking.problems import shown
from dynotune.config.fates.names import EIGHT_BIT_OPTIMIZERS
from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.errors import ConfigError
from dynotune.train.eight_bits import adamw_8bit
from dynotune.train.faults.limits import Limits

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

# transformers keeps weight decay off these (Trainer.get_decay_parameter_names); a test compares with the installed one.
NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]


def _adamw(groups: Any, config: OptimizerConfig, more: dict[str, Any], fused: bool) -> torch.optim.Optimizer:
    betas = (config.adam_beta1, config.adam_beta2)
    return torch.optim.AdamW(
        groups, **{"lr": config.learning_rate, "betas": betas, "eps": config.adam_epsilon, "fused": fused, **more}
    )


def _sgd(groups: Any, config: OptimizerConfig, more: dict[str, Any], fused: bool) -> torch.optim.Optimizer:
    # PyTorch's fused kernel leaves the first momentum unfilled when it masks the first step, and the next one uses it. With
    # buffers of zeros no step is a first one; with dampening that would be another update, so there the host waits.
    optimizer = torch.optim.SGD(
        groups, **{"lr": config.learning_rate, "fused": fused and not more.get("dampening"), **more}
    )
    for group in optimizer.param_groups:
        if group["momentum"] and group["dampening"] and group["fused"]:
            raise ValueError("fused SGD with dampening cannot skip a first step that is not finite; take `fused` out")
        if group["momentum"] and group["fused"]:
            for p in group["params"]:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return optimizer


def _adagrad(groups: Any, config: OptimizerConfig, more: dict[str, Any], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(groups, **{"lr": config.learning_rate, **more})


def _rmsprop(groups: Any, config: OptimizerConfig, more: dict[str, Any], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups, **{"lr": config.learning_rate, **more})


def _adafactor(groups: Any, config: OptimizerConfig, more: dict[str, Any], fused: bool) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    return Adafactor(groups, **{"lr": config.learning_rate, "scale_parameter": False, "relative_step": False, **more})


OPTIMIZERS: dict[str, Callable[[Any, OptimizerConfig, dict[str, Any], bool], torch.optim.Optimizer]] = {
    "adamw_torch_fused": _adamw,
    "adamw_torch": _adamw,  # the same mathematics; the fused kernel where PyTorch has one
    "sgd": _sgd,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adafactor": _adafactor,
}


def build_optimizer(model: torch.nn.Module, config: OptimizerConfig, fused: bool = True) -> torch.optim.Optimizer:
    """The optimizer over the trainable parameters, in transformers' two groups: with and without weight decay.

    fused: one kernel over many tensors, where PyTorch has one for `optim`. `optim_args` win over it.
    """
    from transformers.trainer_pt_utils import get_parameter_names

    if config.optim not in OPTIMIZERS and config.optim not in EIGHT_BIT_OPTIMIZERS:
        supported = ", ".join((*OPTIMIZERS, *EIGHT_BIT_OPTIMIZERS))
        raise ConfigError(
            f"`optim: {config.optim}` is not supported. Supported are {supported}. Paged and low-rank optimizers change the"
            " result and come later, each under its own name."
        )
    decayed = set(get_parameter_names(model, [torch.nn.LayerNorm], NO_DECAY))
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    more = parse_args(config.optim_args)
    try:
        if config.optim in EIGHT_BIT_OPTIMIZERS:
            return adamw_8bit(model, groups, config, more)
        return OPTIMIZERS[config.optim](groups, config, more, fused)
    except (TypeError, ValueError, RuntimeError) as error:  # PyTorch's ways to refuse an argument or a combination
        raise ConfigError(
            f"`optim_args: {config.optim_args}` does not suit `optim: {config.optim}`: {error}"
        ) from error


SPELLED = {"true": True, "yes": True, "false": False, "no": False}
"""Words for the two values, as transformers takes them (`nesterov=true`)."""


def parse_args(text: str | None) -> dict[str, Any]:
    """`key=value, key=value` with Python literals as values, or `true` and `false`."""
    parsed: dict[str, Any] = {}
    for part in (text or "").replace(" ", "").split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"`optim_args: {text}`: `{part}` is not of the form key=value.")
        if value.lower() in SPELLED:
            parsed[key] = SPELLED[value.lower()]
            continue
        try:
            parsed[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError) as error:
            raise ConfigError(f"`optim_args: {text}`: `{value}` is not a number, true/false or quoted text.") from error
    return parsed


def build_schedule(optimizer: torch.optim.Optimizer, config: OptimizerConfig, total_steps: int) -> "LRScheduler":
    """The learning-rate schedule by transformers' name over `total_steps`."""
    from transformers import get_scheduler
    from transformers.trainer_utils import SchedulerType

    names = [kind.value for kind in SchedulerType]
    if config.lr_scheduler_type not in names:
        raise ConfigError(f"`lr_scheduler_type: {config.lr_scheduler_type}` is unknown. Known are {', '.join(names)}.")
    warmup = warmup_steps(config, total_steps)
    try:
        schedule = get_scheduler(
            config.lr_scheduler_type,
            optimizer,
            num_warmup_steps=warmup,
            num_training_steps=total_steps,
            scheduler_specific_kwargs=dict(config.lr_scheduler_kwargs),
        )
        for factor in getattr(
            schedule, "lr_lambdas", ()
        ):  # what fails behind the warm-up shall fail before the first step
            for step in (min(warmup, total_steps), total_steps):
                factor(step)
    except ZeroDivisionError as error:
        raise ConfigError(
            f"`lr_scheduler_type: {config.lr_scheduler_type}` divides by zero: `warmup_steps` takes {warmup} of"
            f" {total_steps} steps, and none is left to fall over (or `lr_scheduler_kwargs` holds a 0). Make the warm-up"
            " shorter."
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"`lr_scheduler_kwargs: {shown(config.lr_scheduler_kwargs, key='lr_scheduler_kwargs')}` does not suit"
            f" `lr_scheduler_type: {config.lr_scheduler_type}`: {error}"
        ) from error
    return cast("LRScheduler", schedule)


def warmup_steps(config: OptimizerConfig, total_steps: int) -> int:
    """Warm-up in steps; a value below 1 is a share of all steps, rounded up as in transformers."""
    import math

    return math.ceil(config.warmup_steps * total_steps if config.warmup_steps < 1 else config.warmup_steps)


class Update:
    """Turns accumulated gradients into one update, and keeps the weights clean of what is not finite.

    The check stays on the device: PyTorch's fused optimizers take `found_inf` and then leave weights and states as they
    were. An optimizer without that kernel makes the host wait for one flag a step (`waits_for_device`).
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        optimizer: torch.optim.Optimizer,
        max_grad_norm: float,
        limits: Limits | None = None,
        skipped: tuple[int, int] = (0, 0),
    ) -> None:
        """limits: how many steps may be left out because they are not finite; from the one that is one too many on, no
        update touches weights or states any more. None: any number.

        skipped: how many were left out already, in a row and in all.
        """
        self.parameters = list(parameters)
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm
        self.limits, self.skipped = limits, skipped
        self._stopped: Tensor | None = None
        self._counts: tuple[Tensor, Tensor] | None = None
        self.stepping = False
        """Whether the optimizer was interrupted, so that weights may be half updated."""

        self.left_out = False
        """Whether the last step was left out by the host, without any work of the optimizer."""

        self.waits_for_device = not all(group.get("fused") for group in optimizer.param_groups)

    def set_fused(self, fused: bool) -> None:
        """Take the fused kernel out where it is in use and `fused` is False; it is never put in later."""
        if fused or self.waits_for_device:
            return
        for group in self.optimizer.param_groups:
            group["fused"] = False
        for name in ("found_inf", "grad_scale"):
            if hasattr(self.optimizer, name):
                delattr(self.optimizer, name)
        self.waits_for_device = True

    def __call__(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Clip, step, clear. Returns the gradient norm before clipping [] and whether the step was finite [] (bool)."""
        if self.max_grad_norm:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        admitted = self._admit(finite)
        self.stepping = True
        if self.waits_for_device:
            self.left_out = not bool(admitted)
            if not self.left_out:
                self.optimizer.step()
        else:
            self.optimizer.found_inf = (~admitted).to(torch.float32)  # type: ignore[attr-defined]
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            self.optimizer.step()
        self.stepping = False
        self.optimizer.zero_grad(set_to_none=True)
        return norm, finite

    def _admit(self, finite: Tensor) -> Tensor:
        """Whether the update reaches the weights [] (bool). Decided on the device: the host reads of a step much later."""
        if self.limits is None:
            return finite
        bad = ~finite
        if self._stopped is None:
            self._stopped = torch.zeros_like(finite)
        if self.limits.stops_at_first:
            self._stopped |= bad
        else:
            if self._counts is None:
                in_a_row, in_all = (torch.full_like(finite, n, dtype=torch.int32) for n in self.skipped)
                self._counts = in_a_row, in_all
            in_a_row, in_all = self._counts
            in_a_row.add_(1).mul_(bad)
            in_all.add_(bad)
            self._stopped |= (in_a_row > self.limits.in_a_row) | (in_all > self.limits.in_all)
        return finite & ~self._stopped
