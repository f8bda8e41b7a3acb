"""Adapters' parts of gate, up and the gradient of down's input, added by the kernel of the gated activation, which makes the
gradients of these adapters that read a wide tensor as well.

Legend of shapes: T tokens, I intermediate, r rank of one linear, R ranks side by side.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.aside import Aside
from dynotune.model.elementwise.gate import APART, FusedGate
from dynotune.model.elementwise.gate import reference as gated
from dynotune.model.elementwise.proof import random, why_different
from dynotune.model.lora.left_out import LeftOut
from dynotune.model.lora.linear import KEPT, FusedLinear, hook_tables
from dynotune.model.lora.shared import LoraShared
from dynotune.model.product_settings import under

ROWS = 600
"""Of the comparison: more than a part of the rows has, so that sums over parts are seen, and no multiple of a tile's."""

MOST_RANK = 128
"""For the kernels: above, tiles of low-rank factors leave no room for those of the wide ones, and adding costs what it
saves."""

DROPS = "its adapters drop out"

Function = Callable[..., Tensor]
"""As `triton_gate_lora.GatedLora.apply`."""


class AdaptersBetween:
    """What `fused` asks for its hidden values. Where it gives None in this call everything is as it would be without."""

    def __init__(self, fused: FusedGate, linears: list[FusedLinear], shared: LoraShared, function: Function) -> None:
        self.fused, self.shared, self.function = fused, shared, function
        self.gate, self.up, self.down = linears
        self.watched = [table for linear in linears for table in hook_tables(linear.module)]
        """Where hooks would be, which must see what the whole linear gives."""

        self.calls = 0
        self.aside = Aside()
        """Calls in which linears add their adapters' parts themselves."""

    def __call__(self, x: Tensor) -> Tensor | None:
        """From the input of gate and up [..., D] to that of down [..., I], whose next call leaves its part out; or None.

        To be followed by `down` and `close`."""
        if (why_not := self.why_not(x)) is not None:
            self.aside.because(why_not)
            return None
        above = LeftOut("outputs")
        self.shared.left_out = above
        try:
            gate_TI, up_TI = self.gate.module(x), self.up.module(x)
        finally:
            self.shared.left_out = None
        if above.low_TR is None:  # computed one by one, as they are
            self.aside.because("gate and up were computed one by one")
            return self.fused.between(gate_TI, up_TI)
        assert self.shared.x is None, "up was computed by itself, with its adapter"
        below = LeftOut("gradient")
        trained = self.gate.weights()[1], self.up.weights()[1], self.down.weights()[0]
        hidden_TI = self.function(
            gate_TI, up_TI, above.low_TR, *above.weights, *trained, above.scale, above.scale, below, self.fused.tanh
        )
        self.down.left_out = below  # last: were the kernel to raise, nobody would add what down left out
        self.calls += 1
        return hidden_TI

    def close(self) -> None:
        """Behind the call of down."""
        self.down.left_out = None

    def why_not(self, x: Tensor) -> str | None:
        """None where gate and up will be computed together and down by itself, as plain LoRA, and nobody looks at them."""
        down, linears = self.down, zip(APART, (self.gate, self.up, self.down), strict=True)
        if any(self.watched) or _has_any_global_hook():
            return "a hook sees its linears"
        if "between" in self.fused.__dict__:
            return "its result is made again in the backward pass"
        if x.dtype is not down.compute or x.get_device() != self.fused.place:
            return f"its input is {x.dtype} on {x.device}"
        if self.shared.linears != [self.gate, self.up] or any(
            linear.module.__dict__.get(KEPT) is not linear or self.fused.children.get(name) is not linear.module
            for name, linear in linears
        ):
            return "its linears are others now"
        if not self.gate.in_a_pass:
            return "it was called outside of the model's forward pass"
        return None if down.is_plain(x) and not down.drops() else "down is no plain LoRA linear now"


def adapters_between(fused: Any, function: Function, most_rank: int) -> AdaptersBetween | str:
    """What adds the adapters' parts in the kernel that stands in as the forward of a feed-forward module, or why nothing
    can. Compares it with PyTorch's operations, forward and backward, in float32 and in the adapters' precision; not on a
    skeleton, which computes nothing."""
    if not isinstance(fused, FusedGate):
        return "its gated activation is not our kernel's"
    if fused.together:
        return OfAnotherKind("gate and up are one linear")
    linears: list[FusedLinear] = []
    for name in APART:
        linear = getattr(fused.children[name], KEPT, None)
        if not isinstance(linear, FusedLinear):
            reason = f"{name} is no fused LoRA linear"
            has_adapter = hasattr(fused.children[name], "lora_A")
            return reason if has_adapter else OfAnotherKind(reason)
        linears.append(linear)
    gate, up, down = linears
    if gate.shared is None or gate.shared.linears != [gate, up]:
        return "gate_proj and up_proj are not computed together"
    if any(linear.drops_in_training() for linear in linears):
        return DROPS
    ranks = [linear.weights()[0].shape[0] for linear in linears]
    if max(ranks) > most_rank:
        return f"its rank is above {most_rank}"
    weight_DI = down.base.weight
    if weight_DI.is_meta:
        return AdaptersBetween(fused, linears, gate.shared, function)
    why = _why_different(function, fused.tanh, tuple(ranks), weight_DI.shape[1], weight_DI.device, down.compute)
    return why or AdaptersBetween(fused, linears, gate.shared, function)


class Reference(torch.autograd.Function):
    """What the kernels compute, by torch's operations."""

    @staticmethod
    def forward(
        ctx: Any, gate_TI: Tensor, up_TI: Tensor, u_TR: Tensor, b_gate_Ir: Tensor, b_up_Ir: Tensor,
        B_gate_Ir: Tensor, B_up_Ir: Tensor, A_down_rI: Tensor, s_gate: float, s_up: float, below: LeftOut, tanh: bool,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(gate_TI, up_TI, u_TR, b_gate_Ir, b_up_Ir, B_gate_Ir, B_up_Ir, A_down_rI)
        ctx.scales, ctx.below, ctx.tanh = (s_gate, s_up), below, tanh
        return gated(tanh, *_sums((gate_TI, up_TI), u_TR, (b_gate_Ir, b_up_Ir), ctx.scales))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gate_TI, up_TI, u_TR, b_gate_Ir, b_up_Ir, *trained = ctx.saved_tensors
        (dh_TI,), below, made = grads, ctx.below, ctx.needs_input_grad[5:8]
        with torch.enable_grad():
            wide = [
                one.detach().requires_grad_() for one in _sums((gate_TI, up_TI), u_TR, (b_gate_Ir, b_up_Ir), ctx.scales)
            ]
            h_TI = gated(ctx.tanh, *wide)
        found: list[Tensor | None] = [None] * 3
        if below.low_TR is not None:
            dh_TI = dh_TI + below.scale * (below.low_TR @ below.weights[0]).view(dh_TI.shape)
            found[2] = below.scale * below.low_TR.t() @ h_TI.detach().flatten(0, -2)
        dwide = torch.autograd.grad(h_TI, wide, dh_TI)
        us = u_TR.split([b_gate_Ir.shape[1], b_up_Ir.shape[1]], 1)
        found[:2] = [s * d.flatten(0, -2).t() @ u for s, d, u in zip(ctx.scales, dwide, us, strict=True)]
        each = zip(found, trained, made, strict=True)
        weights = (one.to(of.dtype) if one is not None and needed else None for one, of, needed in each)
        return *dwide, None, None, None, *weights, None, None, None, None


def _sums(wide: Sequence[Tensor], u_TR: Tensor, bs: Sequence[Tensor], scales: Sequence[float]) -> list[Tensor]:
    us = u_TR.split([b.shape[1] for b in bs], 1)
    return [w + s * F.linear(u, b).view(w.shape) for w, u, b, s in zip(wide, us, bs, scales, strict=True)]


reference: Function = Reference.apply
"""As `triton_gate_lora.GatedLora.apply`."""


@cache
def _why_different(
    function: Function, tanh: bool, ranks: tuple[int, ...], width: int, device: torch.device, compute: torch.dtype
) -> str | None:
    """Once for layers that are alike: the numbers are the same ones, and drawing them takes 0.1 s a layer of a 7B."""
    r_gate, r_up, r_down = ranks
    # gate, up, u, B of gate and of up, A of down, v
    shapes = (ROWS, width), (ROWS, width), (ROWS, r_gate + r_up), (width, r_gate), (width, r_up), (r_down, width)
    inputs = [random(shape, i, device) for i, shape in enumerate((*shapes, (ROWS, r_down)))]

    def by(function: Function) -> Function:
        def run(
            gate_TI: Tensor, up_TI: Tensor, u: Tensor, B_gate: Tensor, B_up: Tensor, A_down: Tensor, v: Tensor
        ) -> Tensor:
            below = LeftOut("gradient", v, (A_down.detach(),), scale=0.25)
            b = B_gate.detach(), B_up.detach()
            return function(gate_TI, up_TI, u, *b, B_gate, B_up, A_down, 0.5, 0.75, below, tanh)

        return run

    wants = [True, True, False, True, True, True, False]
    with under(device, None, tf32=False):  # of float32 products the run may want less than is compared here
        return why_different(by(reference), by(function), inputs, wants, [compute] * len(inputs))


def candidates(model: nn.Module) -> dict[str, FusedGate]:
    """The kernels of gated activations that stand in `model`, by the names of their modules."""
    found = {name: module.__dict__.get("forward") for name, module in model.named_modules()}
    return {name: forward for name, forward in found.items() if isinstance(forward, FusedGate)}
