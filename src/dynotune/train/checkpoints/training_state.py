"""Optimizer and schedule as named tensors and plain JSON, and back."""

from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor

from dynotune.errors import TrainingError
from dynotune.train.state import Trainee

GROUP_VALUES = {
    "learning_rate": ("lr", "initial_lr"),
    "weight_decay": ("weight_decay",),
    "adam_beta1": ("betas",),
    "adam_beta2": ("betas",),
    "adam_epsilon": ("eps",),
}
"""Keys of the configuration to the values in the optimizer's groups that follow from them."""


EXECUTION = frozenset({"fused", "foreach", "capturable", "differentiable"})
"""Values in the optimizer's groups that say how it is executed on this device: never a checkpoint's."""


SEEN = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch", "_last_lr")
"""Of `reduce_lr_on_plateau`: what it knows of the run so far."""

COUNTED = ("base_lrs", "last_epoch", "_step_count", "_last_lr")
"""Of a schedule of the step. What else PyTorch keeps there differs from version to version and within a step."""


def training_state(
    trainee: Trainee, copy: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Optimizer and schedule as named tensors and plain JSON. `copy` takes each tensor to where it will not change."""
    names = {id(p): name for name, p in trainee.model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Any]] = {}
    for parameter, values in trainee.optimizer.state.items():
        name = names[id(parameter)]
        for key, value in values.items():
            if isinstance(value, Tensor):
                place = f"optimizer/{name}/{key}"
                tensors[place] = copy(place, value.detach()).contiguous()
            else:
                plain.setdefault(name, {})[key] = value
    state = {
        "optimizer": plain,
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in trainee.optimizer.param_groups],
        "schedule": {k: v for k, v in trainee.schedule.state_dict().items() if k != "lr_lambdas"},
    }
    return tensors, state


def restore_training_state(
    trainee: Trainee, tensors: dict[str, Tensor], state: dict[str, Any], changed: Collection[str] = ()
) -> int:
    """Put optimizer and schedule back, but keep what follows from the `changed` keys of the configuration as it is now.

    Returns how many parameters have got a state. Raises `KeyError`, `ValueError`, `TypeError`, `RuntimeError` or
    `AttributeError` where the state is not that of this optimizer.
    """
    # Through the optimizer's own loader: it knows which values belong on the device and which (step counters) do not.
    names = {id(p): name for name, p in trainee.model.named_parameters()}
    parameters = [p for group in trainee.optimizer.param_groups for p in group["params"]]
    index = {names[id(p)]: i for i, p in enumerate(parameters)}
    values: dict[int, dict[str, Any]] = {index[name]: dict(plain) for name, plain in state["optimizer"].items()}
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            owner, what = key.removeprefix("optimizer/").rsplit("/", 1)
            values.setdefault(index[owner], {})[what] = tensor
    # Every parameter has a state or none has; matrices may have other states than vectors (adafactor),
    # and those in 8 bits others than the rest.
    in_8_bits = getattr(trainee.optimizer, "has_8_bits", lambda parameter: False)
    kinds = {((p.dim() > 1, in_8_bits(p)), frozenset(v)) for p, v in ((parameters[i], v) for i, v in values.items())}
    if values and (len(values) != len(parameters) or len(kinds) != len({kind for kind, _ in kinds})):
        raise ValueError(f"optimizer states of {len(values)} parameters, of {len(parameters)} that are trained")
    ours = {value for key in changed for value in GROUP_VALUES.get(key, ())}
    groups = trainee.optimizer.state_dict()["param_groups"]
    for group, saved in zip(groups, state["groups"], strict=True):
        kept = {k: v for k, v in saved.items() if k in group and k not in ours and k not in EXECUTION}
        _check_like(group, kept)
        group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in kept.items()})
    trainee.optimizer.load_state_dict({"state": values, "param_groups": groups})
    seen = {key: state["schedule"][key] for key in (COUNTED if hasattr(trainee.schedule, "lr_lambdas") else SEEN)}
    _check_like(trainee.schedule.state_dict(), seen)
    _restore_schedule(trainee, seen, keeps_rate="learning_rate" in changed)
    return len(values)


def _check_like(ours: dict[str, Any], saved: dict[str, Any]) -> None:
    """Saved values must be of the kind that they replace: what is wrong here would fail steps later, without a name."""
    for key, value in saved.items():
        if not _like(ours[key], value):
            raise TypeError(f"{key} is {value!r}")


def _like(mine: Any, value: Any) -> bool:
    if mine is None or isinstance(mine, bool | str):  # they follow from the configuration, which is the same
        return bool(value == mine) and type(value) is type(mine)
    if isinstance(mine, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(mine, list | tuple):
        return isinstance(value, list) and len(value) == len(mine) and all(map(_like, mine, value))
    return True


def check_schedules(then: dict[str, Any], schedule: Any) -> None:
    """A schedule of the step can follow another one; one that watches evaluations can follow only itself."""
    if ("num_bad_epochs" in then) != hasattr(schedule, "num_bad_epochs"):
        raise TrainingError(
            "`lr_scheduler_type` changed between a schedule of the step and `reduce_lr_on_plateau`, which has a state that"
            " the other lacks. Resume with the schedule of the checkpoint."
        )


def _restore_schedule(trainee: Trainee, saved: dict[str, Any], keeps_rate: bool) -> None:
    schedule = trainee.schedule
    base_lrs = list(getattr(schedule, "base_lrs", []))
    if not hasattr(schedule, "lr_lambdas"):
        rates = [group["lr"] for group in trainee.optimizer.param_groups]
        # Only what it has seen: what it was told (factor, patience) is the configuration's as it is now.
        schedule.load_state_dict(saved)
        if keeps_rate:
            schedule._last_lr = rates
        return
    schedule.load_state_dict({**saved, "lr_lambdas": [None] * len(schedule.lr_lambdas)})
    if keeps_rate:
        schedule.base_lrs = base_lrs
    # The rates follow from the step and from how long the run is now: a run that was made longer goes on along the longer
    # schedule instead of from the end of the shorter one. Where the length is the same, these are the saved values.
    rates = [base * f(schedule.last_epoch) for base, f in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
    for group, rate in zip(trainee.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    schedule._last_lr = rates
