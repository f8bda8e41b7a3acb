"""Promise: a module that a speed-up is for and does not take counts against it; one that computes something else does not.
What tells them apart is said where the reason is found."""

from typing import Any

import torch
from torch import nn

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.elementwise import Engaged, install
from dynotune.speedups.contract import Installation
from dynotune.speedups.declared.rms_norm_kernel import RmsNormKernel
from dynotune.speedups.left_out import excepted_of, in_words, left_out_of, modules_of
from tests.model.elementwise.stand_ins import stand_ins
from tests.tiny import tiny_model


class GatedRMSNorm(nn.Module):
    """Named as one, with a state that the kernel has no place for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        self.variance_epsilon = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * self.weight + self.bias


def standing(change: Any) -> Installation:
    model: Any = tiny_model("llama")
    change(model)
    engaged: Engaged = install(model, torch.float32, ("RMSNorm",), stand_ins())
    found = RmsNormKernel().standing(engaged)
    assert isinstance(found, Installation)
    return found


def test_one_norm_with_another_forward_counts_and_is_named() -> None:
    def patched(model: Any) -> None:
        norm = model.model.layers[1].input_layernorm
        norm.forward = norm.forward

    found = standing(patched)
    assert found.left_out == ("model.layers.1.input_layernorm: its forward was replaced by someone else",)
    assert (len(found.places), found.excepted) == (4, ())


def test_a_norm_of_another_form_does_not_count() -> None:
    def added(model: Any) -> None:
        model.gate_norm = GatedRMSNorm()

    found = standing(added)
    assert found.excepted == ("gate_norm: its state is not one vector called weight",)
    assert (len(found.places), found.left_out) == (5, ())


def test_reasons_are_parted_by_their_kind_and_keep_their_words() -> None:
    others = {"a.b": "a hook watches it: twice", "c": OfAnotherKind("it is an embedding")}
    assert left_out_of(others) == ("a.b: a hook watches it: twice",)
    assert excepted_of(others) == ("c: it is an embedding",)
    assert modules_of(left_out_of(others)) == ["a.b"]
    assert in_words("a.b: a hook watches it: twice") == "a.b (left out: a hook watches it: twice)"
    assert in_words("a.b") == "a.b (left out)"
