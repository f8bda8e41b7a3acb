"""Optimizer, schedule and random states as named tensors and plain JSON, and back."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynotune.train.state import Trainee


def training_state(trainee: Trainee) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Optimizer, schedule and random states as named tensors and plain JSON."""
    names = {id(p): name for name, p in trainee.model.named_parameters()}
    tensors: dict[str, Tensor] = {"rng/torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"rng/cuda/{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    plain: dict[str, dict[str, Any]] = {}
    for parameter, values in trainee.optimizer.state.items():
        name = names[id(parameter)]
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{name}/{key}"] = value.detach().contiguous()
            else:
                plain.setdefault(name, {})[key] = value
    numpy_state: Any = np.random.get_state()  # the global generator is what libraries draw from
    schedule = {k: v for k, v in trainee.schedule.state_dict().items() if k != "lr_lambdas"}
    state = {
        "optimizer": plain,
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in trainee.optimizer.param_groups],
        "schedule": schedule,
        "rng_python": random.getstate(),
        "rng_numpy": [numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]],
    }
    return tensors, state


def restore_training_state(trainee: Trainee, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    # Through the optimizer's own loader: it knows which values belong on the device and which (step counters) do not.
    names = {id(p): name for name, p in trainee.model.named_parameters()}
    parameters = [p for group in trainee.optimizer.param_groups for p in group["params"]]
    index = {names[id(p)]: i for i, p in enumerate(parameters)}
    values: dict[int, dict[str, Any]] = {index[name]: dict(plain) for name, plain in state["optimizer"].items()}
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            owner, what = key.removeprefix("optimizer/").rsplit("/", 1)
            values.setdefault(index[owner], {})[what] = tensor
    # Every parameter has a state or none has; matrices may have other states than vectors (adafactor).
    kinds = {(parameters[i].dim() > 1, frozenset(v)) for i, v in values.items()}
    if values and (len(values) != len(parameters) or len(kinds) != len({matrix for matrix, _ in kinds})):
        raise ValueError(f"optimizer states of {len(values)} parameters, of {len(parameters)} that are trained")
    groups = trainee.optimizer.state_dict()["param_groups"]
    for group, saved in zip(groups, state["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in saved.items()})
    trainee.optimizer.load_state_dict({"state": values, "param_groups": groups})
    _restore_schedule(trainee, dict(state["schedule"]))
    version, internal, gauss = state["rng_python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["rng_numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    torch.set_rng_state(tensors["rng/torch"])
    if torch.cuda.is_available():
        saved_cuda = [tensors[k] for k in sorted(tensors) if k.startswith("rng/cuda/")]
        if len(saved_cuda) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(saved_cuda)


def _restore_schedule(trainee: Trainee, saved: dict[str, Any]) -> None:
    schedule = trainee.schedule
    if not hasattr(schedule, "lr_lambdas"):
        schedule.load_state_dict(saved)
        return
    schedule.load_state_dict({**saved, "lr_lambdas": [None] * len(schedule.lr_lambdas)})
    # The rates follow from the step and from how long the run is now: a run that was made longer goes on along the longer
    # schedule instead of from the end of the shorter one. Where the length is the same, these are the saved values.
    rates = [base * f(schedule.last_epoch) for base, f in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
    for group, rate in zip(trainee.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    schedule._last_lr = rates
