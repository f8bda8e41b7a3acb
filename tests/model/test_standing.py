"""Promise: looking at a step does not change what it does: a trace's range around a forward is no wrapper of somebody's."""

import functools
from typing import Any

import torch
from torch import nn

from dynotune.measure.traces.places import Places, Ranges
from dynotune.model.head.projection import is_linear
from dynotune.model.standing import stands_by_itself


def ranged(module: nn.Module) -> Ranges:
    return Ranges(Places(nn.ModuleDict({"head": module}), ["head"]).watched(), str)


def wrapped(module: nn.Module) -> None:
    """As accelerate's hooks do it."""
    before = module.forward

    @functools.wraps(before)
    def forward(*args: Any) -> Any:
        return 2 * before(*args)

    module.forward = forward  # type: ignore[method-assign]


def test_a_traced_head_is_the_linear_layer_that_it_was() -> None:
    head = nn.Linear(4, 8)
    assert is_linear(head)
    with ranged(head):
        assert "forward" in vars(head)
        assert is_linear(head)
    assert is_linear(head)


def test_somebody_elses_wrapper_is_seen_traced_or_not() -> None:
    """A control: it may compute another thing."""
    head = nn.Linear(4, 8)
    wrapped(head)
    assert not is_linear(head)
    with ranged(head):
        assert not is_linear(head)


def test_a_class_of_its_own_is_none_traced_or_not() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    head = Doubled(4, 8)
    assert not is_linear(head)
    with ranged(head):
        assert not is_linear(head)
        assert not stands_by_itself(head, nn.Linear.forward)
        assert stands_by_itself(head, Doubled.forward)


def test_another_modules_method_is_none_of_its_own_traced_or_not() -> None:
    """A control: the weights that it multiplies by are the other's."""
    head, other = nn.Linear(4, 8), nn.Linear(4, 8)
    head.forward = other.forward  # type: ignore[method-assign]
    assert not is_linear(head)
    with ranged(head):
        assert not is_linear(head)


def test_two_who_look_at_once_change_nothing() -> None:
    head = nn.Linear(4, 8)
    with ranged(head), ranged(head):
        assert is_linear(head)
