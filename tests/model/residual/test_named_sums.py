"""Promise: a layer's code with its sums named is the layer's code, and what cannot be read is left alone and says so."""

import importlib.util
import linecache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dynotune.model.residual.named_sums import ANSWERS, NONE, with_named_sums

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
    changed = found
    layer, x = Layer(), torch.linspace(-1, 1, 5)
    answers = Answers()
    setattr(layer, ANSWERS, answers)
    others = [torch.full((5,), float(i)) for i in range(rest)]
    assert torch.equal(changed(layer, x, *others, twice=twice), layer(x, *others, twice=twice))
    assert answers.asked == ([0, 1] if twice else [0])


def test_globals_are_looked_up_where_the_layer_looks_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Any = with_named_sums(Layer.forward)
    layer, x = Layer(), torch.linspace(-1, 1, 5)
    setattr(layer, ANSWERS, Answers())
    monkeypatch.setattr(f"{__name__}.SCALE", 5.0)
    assert torch.equal(changed(layer, x), layer(x))
    assert changed.__code__.co_filename == __file__


def test_a_traceback_names_the_layers_own_line() -> None:
    changed: Any = with_named_sums(Layer.forward)
    layer = Layer()
    setattr(layer, ANSWERS, Answers())
    lines = []
    for forward in (changed, Layer.forward):
        with pytest.raises(TypeError) as error:
            forward(layer, "no tensor")
        lines.append(error.traceback[1].lineno)
    assert lines[0] == lines[1]


class WithDefaults(nn.Module):
    SCALE = 2.0

    def forward(self, x: Tensor, /, scale: float = SCALE, seen: list[int] = [], *, shift: float = SCALE) -> Tensor:  # noqa: B006
        seen.append(1)
        inner = lambda self: self + self  # noqa: E731  # its `self` is another
        return (x + inner(x)) * scale + shift


def test_defaults_are_the_layers_own_objects_and_inner_functions_are_left_alone() -> None:
    """`SCALE` of the class is not the one of this file."""
    changed: Any = with_named_sums(WithDefaults.forward)
    layer, x = WithDefaults(), torch.ones(2)
    answers = Answers()
    setattr(layer, ANSWERS, answers)
    assert torch.equal(changed(layer, x), torch.full((2,), 3 * 2.0 + 2.0))
    assert torch.equal(changed(layer, x), layer(x))
    assert changed.__defaults__ is WithDefaults.forward.__defaults__
    assert answers.asked == [0, 0]
    assert changed.__qualname__ == "WithDefaults.forward"


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return x + x


class Private(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return self.__scaled(x) + x

    def __scaled(self, x: Tensor) -> Tensor:
        return x * SCALE


def of_a_file(tmp_path: Path, source: str) -> Any:
    path = tmp_path / "layer_of_a_file.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("layer_of_a_file", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.forward


def test_a_file_that_was_edited_since_it_was_imported_is_seen(tmp_path: Path) -> None:
    forward = of_a_file(tmp_path, "def forward(self, x):\n    return x + x\n")
    edited = "def forward(self, x):\n    y = 1000 * x\n    return x + y\n"
    (tmp_path / "layer_of_a_file.py").write_text(edited)
    linecache.checkcache()
    assert with_named_sums(forward) == "its file is not what was imported"
    assert not isinstance(with_named_sums(of_a_file(tmp_path, edited)), str), "the control"


UNREAD: dict[str, Any] = {}
exec("def forward(self, x):\n    return x + x\n", UNREAD)  # a function without a file


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (Nothing.forward, NONE),
        (OfItsClass.forward, "refers to variables around it"),
        (Decorated.forward, "is wrapped"),
        (Private.forward, "is not what was imported"),  # its names are others outside of the class
        (UNREAD["forward"], "cannot be read"),
        (len, "no Python function"),
        (lambda self, x: x + x, "cannot be read|no plain function"),
    ],
)
def test_what_cannot_be_read_says_why(forward: Any, reason: str) -> None:
    found = with_named_sums(forward)
    assert isinstance(found, str)
    assert any(one in found for one in reason.split("|")), found
