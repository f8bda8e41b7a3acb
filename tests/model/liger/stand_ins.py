"""Liger's functions made of torch's operations, in the places where Liger has them and overwriting what Liger overwrites.

So what is installed where, proved and refused can be tested without Triton and a GPU. What Liger's kernels compute is tested
in Triton's interpreter (`interpreted.py`).
"""

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dynotune.model.liger
from dynotune.model.elementwise import gate, norm
from dynotune.model.liger import usable
from dynotune.speedups import packages
from tests.model.elementwise.stand_ins import rotate
from tests.model.elementwise.stand_ins import stand_ins as ours

ROOM = ("kernels", "gated", "rotary")
"""Files of `dynotune.model.liger` that import Liger when they are imported."""


class RmsNorm(torch.autograd.Function):
    """Ours, by its name in a trace."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, *form: Any) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.form = form
        return norm.reference(x, w, *form)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return *_gradients(lambda x, w: norm.reference(x, w, *ctx.form), ctx.saved_tensors, dy), None, None, None


class Gated(torch.autograd.Function):
    """Ours."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, ups: Tensor, tanh: bool) -> Tensor:
        ctx.save_for_backward(gates, ups)
        ctx.tanh = tanh
        return gate.reference(tanh, gates, ups)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return *_gradients(lambda a, b: gate.reference(ctx.tanh, a, b), ctx.saved_tensors, dy), None


class Rotary(torch.autograd.Function):
    """Ours."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        ctx.save_for_backward(cos, sin)
        return rotate(q, k, cos, sin)

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        return *_gradients(lambda q, k: rotate(q, k, cos, sin), (dq, dk), (dq, dk)), None, None


class LigerRMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, eps: float, offset: float, casting: str, in_place: bool) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.form = eps, offset, casting == "llama"
        ctx.in_place = in_place
        return norm.reference(x, w, *ctx.form).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        dx, dw = _gradients(lambda x, w: norm.reference(x, w, *ctx.form).to(x.dtype), ctx.saved_tensors, dy)
        return (dy.copy_(dx) if ctx.in_place else dx), dw, None, None, None, None


class LigerFusedLinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, targets: Tensor, bias: Any, *rest: Any) -> Any:
        _, _, _, smoothing, reduction, cap, _, _, by_probability, *_ = rest
        assert reduction == "sum"

        def loss(rows: Tensor, weight: Tensor) -> Tensor:
            z = F.linear(rows, weight, bias).float()
            z = z if cap is None else cap * torch.tanh(z / cap)
            losses = F.cross_entropy(z, targets, reduction="none", label_smoothing=smoothing)
            return (losses * (losses.detach().neg().exp() if by_probability else 1)).sum()

        with torch.no_grad():
            accuracy = (F.linear(rows, weight, bias).argmax(-1) == targets).float().mean()
            total = loss(rows, weight)
        ctx.gradients = _gradients(loss, (rows, weight), torch.ones(())) if rows.requires_grad else (None, None)
        ctx.trained = weight.requires_grad
        return total, None, accuracy, None

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *others: Any) -> Any:
        drows, dweight = ctx.gradients
        return (drows * upstream, dweight * upstream if ctx.trained else None, *[None] * 12)


def swiglu_forward(a: Tensor, b: Tensor) -> Any:
    return a, b, gate.reference(False, a, b)


def swiglu_backward(a: Tensor, b: Tensor, dc: Tensor) -> Any:
    return _in_their_place(False, a, b, dc)


def geglu_forward(a: Tensor, b: Tensor) -> Any:
    return a, b, gate.reference(True, a, b)


def geglu_backward(a: Tensor, b: Tensor, dc: Tensor) -> Any:
    return _in_their_place(True, a, b, dc)


def swiglu_fused_gate_up_forward(y: Tensor) -> Any:
    return y, gate.reference(False, y)


def swiglu_fused_gate_up_backward(y: Tensor, dc: Tensor, in_place: bool) -> Tensor:
    assert not in_place
    return _gradients(lambda y: gate.reference(False, y), (y,), dc)[0]


def rope_forward(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    half = cos.shape[-1] // 2
    cos, sin = (table[..., :half].repeat(1, 1, 2) for table in (cos, sin))  # as Liger's kernel reads them
    for x, rotated in zip((q, k), rotate(q, k, cos, sin), strict=True):
        x.data.copy_(rotated)
    return q, k, cos, sin


def rope_backward(dq: Tensor, dk: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return rope_forward(dq, dk, cos, -sin)[:2]


def put_in(patch: pytest.MonkeyPatch, *, ours_are_seen: bool = True) -> None:
    """Liger is there, and works, and so do our own kernels."""
    functions: dict[str, dict[str, Any]] = {
        "rms_norm": {"LigerRMSNormFunction": LigerRMSNormFunction, "_rms_norm_forward_kernel": None},
        "swiglu": {
            f.__name__: f
            for f in (swiglu_forward, swiglu_backward, swiglu_fused_gate_up_forward, swiglu_fused_gate_up_backward)
        },
        "geglu": {f.__name__: f for f in (geglu_forward, geglu_backward)},
        "rope": {f.__name__: f for f in (rope_forward, rope_backward)},
        "fused_linear_cross_entropy": {"LigerFusedLinearCrossEntropyFunction": LigerFusedLinearCrossEntropyFunction},
    }
    triton = module("triton", runtime=module("triton.runtime", JITFunction=int))
    made = [
        triton,
        module("triton.errors", TritonError=RuntimeError),
        module("liger_kernel"),
        module("liger_kernel.ops"),
    ]
    made += [module(f"liger_kernel.ops.{name}", **those) for name, those in functions.items()]
    for one in made:
        patch.setitem(sys.modules, one.__name__, one)
        parent, _, name = one.__name__.rpartition(".")
        if parent:
            patch.setattr(sys.modules[parent], name, one, raising=False)
    take_out()
    kernels = ours()
    if ours_are_seen:
        kernels = replace(kernels, rms_norm=RmsNorm, gated=Gated, rotary=Rotary)
    for place in ("dynotune.model.elementwise.usable", "dynotune.model.elementwise.install"):
        __import__(place)
        patch.setattr(sys.modules[place], "usable", lambda device: kernels)
    patch.setattr(packages, "missing", lambda name: None)


def take_out() -> None:
    """What was imported with other functions than the present ones."""
    for name in ROOM:
        if sys.modules.pop(f"dynotune.model.liger.{name}", None) is not None:
            delattr(dynotune.model.liger, name)
    usable.kernels.cache_clear()


def module(name: str, **contents: Any) -> ModuleType:
    one = ModuleType(name)
    vars(one).update(contents)
    return one


def _gradients(function: Any, inputs: Any, upstream: Any) -> Any:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        return torch.autograd.grad(function(*leaves), leaves, upstream)


def _in_their_place(tanh: bool, a: Tensor, b: Tensor, dc: Tensor) -> Any:
    da, db = _gradients(lambda a, b: gate.reference(tanh, a, b), (a, b), dc)
    a.data.copy_(da)
    b.data.copy_(db)
    return a.view(a.shape), b.view(b.shape)
