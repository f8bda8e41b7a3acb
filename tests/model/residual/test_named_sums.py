"""Promise: a layer's code with its sums named is the layer's code, and what cannot be read is left alone and says so."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dynotune.model.residual.named_sums import ANSWERS, with_named_sums

SCALE = 3.0


class Layer(nn.Module):
    def forward(self, x: Tensor, *rest: Tensor, twice: bool = False, **more: Any) -> Tensor:
        residual = x
        x = self.branch(x) * SCALE
        x = residual + x
        if twice:
            x = x + self.branch(x)
        for one in rest:
            x += one  # in place: not a sum that could be answered
        return x - residual + 1

    def branch(self, x: Tensor) -> Tensor:
        return torch.sin(x)


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + 1


class OfItsClass(Layer):
    def forward(self, x: Tensor, *rest: Tensor, twice: bool = False, **more: Any) -> Tensor:
        return super().forward(x) + x


class Answers:
    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, number: int, a: Tensor, b: Tensor) -> Tensor:
        self.asked.append(number)
        return a + b


@given(twice=st.booleans(), rest=st.integers(0, 2))
def test_it_gives_what_the_layer_gives_and_asks_for_each_sum(twice: bool, rest: int) -> None:
    found = with_named_sums(Layer.forward)
    assert not isinstance(found, str)
    changed, sums = found
    assert sums == 2
    layer, x = Layer(), torch.linspace(-1, 1, 5)
    answers = Answers()
    setattr(layer, ANSWERS, answers)
    others = [torch.full((5,), float(i)) for i in range(rest)]
    assert torch.equal(changed(layer, x, *others, twice=twice), layer(x, *others, twice=twice))
    assert answers.asked == ([0, 1] if twice else [0])


def test_globals_are_looked_up_where_the_layer_looks_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Any = with_named_sums(Layer.forward)[0]
    layer, x = Layer(), torch.linspace(-1, 1, 5)
    setattr(layer, ANSWERS, Answers())
    monkeypatch.setattr(f"{__name__}.SCALE", 5.0)
    assert torch.equal(changed(layer, x), layer(x))
    assert changed.__code__.co_filename == __file__


def test_a_traceback_names_the_layers_own_line() -> None:
    changed: Any = with_named_sums(Layer.forward)[0]
    layer = Layer()
    setattr(layer, ANSWERS, Answers())
    lines = []
    for forward in (changed, Layer.forward):
        with pytest.raises(TypeError) as error:
            forward(layer, "no tensor")
        lines.append(error.traceback[1].lineno)
    assert lines[0] == lines[1]


def own_code(self: Any, x: Tensor) -> Tensor:
    return x + x


UNREAD: dict[str, Any] = {}
exec("def forward(self, x):\n    return x + x\n", UNREAD)  # a function without a file


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (Nothing.forward, "adds nothing that has a name"),
        (OfItsClass.forward, "refers to variables around it"),
        (UNREAD["forward"], "cannot be read"),
        (len, "no Python function"),
        (lambda self, x: x + x, "cannot be read|no plain function"),
    ],
)
def test_what_cannot_be_read_says_why(forward: Any, reason: str) -> None:
    found = with_named_sums(forward)
    assert isinstance(found, str)
    assert any(one in found for one in reason.split("|")), found
