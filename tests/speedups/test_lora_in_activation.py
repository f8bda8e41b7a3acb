"""Promise: adapters' parts that the gated activation adds are seen in a trace, can be left out for a moment, and a kernel
that does not fit this GPU is a reason, not the end of the run."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dynotune import SFTConfig
from dynotune.measure.traces.step import Tracer
from dynotune.model import lora
from dynotune.model.elementwise import install
from dynotune.model.elementwise.gate_lora import candidates, reference
from dynotune.model.precision import Precision
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.expectation import Verdict
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.model.elementwise.stand_ins import stand_ins
from tests.model.lora.adapted import IDS, adapted_model

CPU = torch.device("cpu")


class NoRoomError(Exception):
    """As Triton's, which is no error of any usual kind."""


class GatedLora(torch.autograd.Function):
    """By PyTorch's operations, under the name that a trace must show."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, *rest: Any) -> Tensor:
        inputs = [
            one.detach().requires_grad_(one.requires_grad) if isinstance(one, Tensor) else one
            for one in (gate, up, *rest)
        ]
        ctx.leaves = [one for one, needed in zip(inputs, ctx.needs_input_grad, strict=True) if needed]
        for one in ctx.leaves:
            one.requires_grad_()
        with torch.enable_grad():
            ctx.h = reference(*inputs)
        return ctx.h.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        found = iter(torch.autograd.grad(ctx.h, ctx.leaves, grads))
        return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)


def refuses(*args: Any) -> Tensor:
    raise NoRoomError("out of resource: shared memory")


def site(**more: Any) -> Site:
    model: Any = adapted_model("qwen2", **more)
    lora.install(model, torch.float32)
    install(model, torch.float32, kernels=stand_ins())
    context = Context(SFTConfig(), model, CPU, torch.float32, Precision(torch.float32, False), longest=64)
    return Site(context, lambda: torch.autocast("cpu", enabled=False))


def put_in(monkeypatch: pytest.MonkeyPatch, at: Site, function: Any = GatedLora.apply) -> Installation | No:
    kernel = SimpleNamespace(GatedLora=SimpleNamespace(apply=function), FAILURES=(NoRoomError,))
    monkeypatch.setitem(sys.modules, "dynotune.model.elementwise.triton_gate_lora", kernel)
    return speedups()["lora_in_activation"].install(at)


def step(at: Site, installed: Installation) -> Any:
    model: Any = at.model
    tracer = Tracer(model, installed.places, CPU)
    with tracer.step(2) as marks:
        with marks.forward(0):
            loss = model(input_ids=IDS, labels=IDS).loss
        with marks.backward(0):
            loss.backward()
    return judge(speedups()["lora_in_activation"].expect(at.context, installed), marks.evidence)  # type: ignore[arg-type]


def test_it_is_seen_and_left_out_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    at = site()
    installed = put_in(monkeypatch, at)
    assert isinstance(installed, Installation)
    assert installed.without is not None, "whoever looks for a culprit takes one out at a time"
    assert step(at, installed).verdict is Verdict.ENGAGED
    with installed.without():
        assert step(at, installed).verdict is Verdict.NOT_ENGAGED
    assert step(at, installed).verdict is Verdict.ENGAGED
    assert installed.aside is not None
    assert installed.aside.calls == 0
    handle = at.model.base_model.model.model.layers[0].mlp.up_proj.register_forward_hook(lambda *args: None)
    step(at, installed)
    assert installed.aside.calls == 1, "somebody looks at a linear of one layer of two"
    handle.remove()
    installed.uninstall()
    with installed.without():
        pass
    assert all(fused.adapters is None for fused in candidates(at.model).values()), "the state is that on entry"


def test_a_kernel_that_the_gpu_has_no_room_for_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = put_in(monkeypatch, site(), refuses)
    assert isinstance(found, No)
    assert "NoRoomError: out of resource" in found.reason


def test_what_would_make_it_possible_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = put_in(monkeypatch, site(lora_dropout=0.1))
    assert found == No("its adapters drop out", "set `lora_dropout: 0`")
