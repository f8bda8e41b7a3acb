"""Gated activations by Liger's kernels. Imported only where Liger is wanted."""

from typing import Any

import torch
from liger_kernel.ops.geglu import geglu_backward, geglu_forward
from liger_kernel.ops.swiglu import (
    swiglu_backward,
    swiglu_forward,
    swiglu_fused_gate_up_backward,
    swiglu_fused_gate_up_forward,
)
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version


class LigerGated(torch.autograd.Function):
    """`LigerGated.apply(gate, up, tanh)`: SwiGLU, or with `tanh` GeGLU in its approximation."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
        """`gate` and `up` [..., I]; gives [..., I]."""
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        ctx.tanh = tanh
        _, _, out = geglu_forward(gate, up) if tanh else swiglu_forward(gate, up)
        return out  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradients take the places of `gate` and `up`. Whoever needs those again gets an error from autograd."""
        gate, up = ctx.saved_tensors
        increment_version((gate, up))  # first, or autograd takes what is made here for views from before
        dgate, dup = (geglu_backward if ctx.tanh else swiglu_backward)(gate, up, dout.contiguous())
        return dgate.detach(), dup.detach(), None


class LigerGatedHalves(torch.autograd.Function):
    """`LigerGatedHalves.apply(both)`: SwiGLU of the two halves of the last dimension."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        """`both` [..., 2 I]; gives [..., I]."""
        both = both.contiguous()
        ctx.save_for_backward(both)
        _, out = swiglu_fused_gate_up_forward(both)
        return out  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> Tensor:
        """Nothing is overwritten."""
        (both,) = ctx.saved_tensors
        dboth: Tensor = swiglu_fused_gate_up_backward(both, dout.contiguous(), in_place=False)
        return dboth.view(both.shape)


class Gated:
    """As `dynotune.model.elementwise.triton_gate.Gated`."""

    @staticmethod
    def apply(gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
        """`gate` and `up` [..., I]; gives [..., I]."""
        return LigerGated.apply(gate, up, tanh)  # type: ignore[no-any-return, no-untyped-call]


class GatedHalves:
    """As `dynotune.model.elementwise.triton_gate.GatedHalves`. Liger has no GeGLU of halves: they are copied apart."""

    @staticmethod
    def apply(both: Tensor, tanh: bool) -> Tensor:
        """`both` [..., 2 I]; gives [..., I]."""
        if tanh:
            return LigerGated.apply(*both.chunk(2, dim=-1), tanh)  # type: ignore[no-any-return, no-untyped-call]
        return LigerGatedHalves.apply(both)  # type: ignore[no-any-return, no-untyped-call]
