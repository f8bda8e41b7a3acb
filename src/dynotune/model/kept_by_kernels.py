"""A skeleton that keeps what our kernels keep, and what autocast casts: nothing is computed.

So that a plan knows what a GPU's step will take, where there is no GPU and no weight.
"""

from collections.abc import Collection
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynotune.model.elementwise import gate, norm, rotary
from dynotune.model.elementwise.usable import Kernels


class _NormKept(torch.autograd.Function):
    """As `RmsNorm`: the input, and a float32 a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x, dtype=torch.promote_types(x.dtype, weight.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError("a skeleton has no backward pass")


class _GateKept(torch.autograd.Function):
    """As `Gated` and `GatedHalves`: what comes in."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *projected, _ = given
        ctx.save_for_backward(*projected)
        last: Tensor = projected[-1]
        return last.new_empty(*last.shape[:-1], last.shape[-1] // (3 - len(projected)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError("a skeleton has no backward pass")


class GatedLoraKept(torch.autograd.Function):
    """As `GatedLora`: what comes in."""

    @staticmethod
    def forward(ctx: Any, gate_TI: Tensor, up_TI: Tensor, u_TR: Tensor, *given: Any) -> Tensor:
        ctx.save_for_backward(gate_TI, up_TI, u_TR, *given[:5])
        return torch.empty_like(gate_TI)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError("a skeleton has no backward pass")


_GATES = Kernels(None, _GateKept, _GateKept, None, failures=(), on_cpu=True)


class _RotaryKept(torch.autograd.Function):
    """As `Rotary`: the tables, which all layers share."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        dtype = torch.promote_types(query.dtype, cos.dtype)
        return torch.empty_like(query, dtype=dtype), torch.empty_like(key, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError("a skeleton has no backward pass")


def as_kernels_keep(model: nn.Module, compute: torch.dtype, slots: Collection[str]) -> None:
    """Let norms, gated activations and rotary embeddings of `model`, a skeleton, keep what kernels keep, where a speed-up is
    in their slot; and its dropout. For good. compute: the dtype of activations."""
    for module in model.modules():
        weight = module._parameters.get("weight")
        if norm.calls_itself_one(module) and weight is not None and weight.ndim == 1:
            if "rms_norm" in slots:
                _put_in(module, _norm(weight))
        elif gate.is_candidate(module):
            fused = gate.fused_gate(module, _GATES, compute)
            if "gated_activation" in slots and not isinstance(fused, str):
                _put_in(module, fused)
        elif len(called := rotary.functions_called(module)) == 1:
            if "rotary" in slots:
                _put_in(module, _rotary(module, called[0]))
        elif isinstance(module, nn.Dropout) and module.p:
            _put_in(module, _dropout(module))


def cast_as_autocast(model: nn.Module, compute: torch.dtype) -> None:
    """Let linear layers of `model`, a skeleton, cast their operands as autocast does: each its own copy of the input. Those
    in whose place something stands are left alone."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and "forward" not in module.__dict__:
            _put_in(module, _cast(module, compute))


def _put_in(module: Any, forward: Any) -> None:
    module.forward = forward


def _norm(weight: Tensor) -> Any:
    return lambda x: _NormKept.apply(x, weight)  # type: ignore[no-untyped-call]


def _dropout(module: nn.Dropout) -> Any:
    # On the meta device `dropout` keeps its mask in the precision of its input; a GPU's kernel keeps a byte.
    return lambda x: torch.native_dropout(x, module.p, True)[0] if module.training else x


def _rotary(module: Any, name: str) -> Any:
    forward: Any = type(module).forward

    def rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *_: Any, **__: Any) -> Any:
        return _RotaryKept.apply(query, key, cos, sin)  # type: ignore[no-untyped-call]

    seen = {**forward.__globals__, name: rotated}
    changed = FunctionType(forward.__code__, seen, forward.__name__, forward.__defaults__, forward.__closure__)
    changed.__kwdefaults__ = forward.__kwdefaults__
    return changed.__get__(module)


def _cast(module: nn.Linear, compute: torch.dtype) -> Any:
    def forward(x: Tensor) -> Tensor:
        bias = None if module.bias is None else module.bias.to(compute)
        return F.linear(x.to(compute), module.weight.to(compute), bias)

    return forward
