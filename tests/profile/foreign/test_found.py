"""Promise: the model of an optimizer is found, whatever lies around it, and no compiled code is touched."""

import pytest
import torch
from torch import nn

from dynotune.profile.foreign.inside.found import callable_ones, look_for


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))


def test_the_outermost_module_that_holds_the_parameters() -> None:
    model = two_layers()
    outer = Wrapper(model)
    other = two_layers()
    found = look_for(model.parameters())
    assert [id(one) for one in found.roots] == [id(outer)]
    assert found.trainer is None
    assert other is not None


def test_calls_may_begin_at_what_holds_nearly_everything() -> None:
    model = two_layers()
    outer = Wrapper(model)
    assert callable_ones([outer]) == [outer, model]


@pytest.mark.long
def test_nothing_is_hooked_inside_of_what_is_compiled() -> None:
    model = two_layers()
    compiled = torch.compile(model, backend="eager")
    assert callable_ones([compiled]) == [compiled]
    in_place = two_layers()
    in_place.compile(backend="eager")
    assert callable_ones([in_place]) == []


def test_a_sharded_optimizers_copies_lead_to_the_largest_model_that_trains() -> None:
    big = nn.Linear(100_000, 100_000, device="meta")  # larger than what other tests may have left
    copies = [torch.zeros(5)]
    assert [id(one) for one in look_for(copies).roots] == [id(big)]
