"""Trained linears of one input as one autograd node: y = x W' + bias of each, in the precision of products.

Under autocast each linear casts the input for itself, and its gradients come in low precision and are cast and added up: of
0.5B in full, casts and sums were a sixth of a step. Here the input is cast once, the input's gradient is summed within the
products, in the precision of the input (in float32 nothing is rounded on the way, in bfloat16 each sum is once), and
gradients of weights come from the product in the precision of the weights.

Legend of shapes: T tokens, I inputs, O outputs, S outputs of all linears side by side; leading dimensions are folded to T.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

FIXED = 3
"""Arguments of `TrainedLinears` before those that come once a linear."""


class TrainedLinears(torch.autograd.Function):
    """`TrainedLinears.apply(x, compute, wide, *weights, *biases)`, see `forward`.

    A profile shows it under its name: one `TrainedLinears` and one `TrainedLinearsBackward` for each group of linears.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: torch.dtype, wide: bool, *parts: Tensor | None) -> tuple[Tensor, ...]:
        """`x` [..., I]; gives y [..., O] of each linear in `compute`.

        Of each linear: weight [O, I], all in one dtype, and bias [O] or None. `wide`: the device has products of operands in
        `compute` with a float32 result (`has_wide_sums`).
        """
        n = len(parts) // 2
        weights: Any = parts[:n]
        low_SI, lows, biases = lowered(weights, parts[n:], compute)
        x_TI = x.reshape(-1, x.shape[-1]).to(compute)
        # No views: whoever takes an output may change it in place, as OLMo's `clip_qkv` does.
        ys = tuple(
            torch.ops.aten._unsafe_view(F.linear(x_TI, low_OI, bias_O), [*x.shape[:-1], low_OI.shape[0]])
            for low_OI, bias_O in zip(lows, biases, strict=True)
        )
        # Weights in `compute` are no copies: saved as they are, so that torch refuses a backward after they were changed.
        trained = any(ctx.needs_input_grad[FIXED:])
        ctx.save_for_backward(x_TI if trained else None, low_SI, *([] if low_SI is not None else lows))
        ctx.outputs = [low_OI.shape[0] for low_OI in lows]
        ctx.like, ctx.shape, ctx.wide = (x.dtype, weights[0].dtype), x.shape, wide
        ctx.set_materialize_grads(False)
        ctx.bias = next((bias.dtype for bias in parts[n:] if bias is not None), None)
        return ys

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """`grads` [..., O] of each linear, None of one whose output nobody used: its weight and bias have none then. What is
        not asked for is not computed; nothing saved is written to."""
        x_TI, low_SI, *lows = ctx.saved_tensors
        n, (of_x, of_weights) = len(grads), ctx.like
        needs = ctx.needs_input_grad
        needs_weight, needs_bias = needs[FIXED : FIXED + n], needs[FIXED + n :]
        used = [(i, grad.reshape(-1, grad.shape[-1])) for i, grad in enumerate(grads) if grad is not None]
        sizes = ctx.outputs
        if low_SI is not None:
            lows = list(low_SI.split(sizes))
        dx = None
        dweights: list[Tensor | None] = [None] * n
        dbiases: list[Tensor | None] = [None] * n
        everything = len(used) == n and all(needs_weight) and needs[0]
        if n > 1 and everything and pays_together(sizes, ctx.shape[-1], of_x.itemsize):
            g_TS = torch.cat([g_TO for _, g_TO in used], dim=1)
            low_SI = low_SI if low_SI is not None else torch.cat(lows)
            dx = product(g_TS, low_SI, of_x, ctx.wide).view(ctx.shape)
            dweights = list(product(g_TS.t(), x_TI, of_weights, ctx.wide).split(sizes))
            if any(needs_bias):
                sums = column_sums(g_TS, ctx.bias, ctx.wide).split(sizes)
                dbiases = [one if asked else None for one, asked in zip(sums, needs_bias, strict=True)]
            return dx, None, None, *dweights, *dbiases
        if needs[0] and used:
            dx = summed_products([g_TO for _, g_TO in used], [lows[i] for i, _ in used], of_x, ctx.wide).view(ctx.shape)
        for i, g_TO in used:
            if needs_weight[i]:
                dweights[i] = product(g_TO.t(), x_TI, of_weights, ctx.wide)
            if needs_bias[i]:
                dbiases[i] = column_sums(g_TO, ctx.bias, ctx.wide)
        return dx, None, None, *dweights, *dbiases


def pays_together(outputs: Sequence[int], inputs: int, itemsize: int) -> bool:
    """Whether gradients [T, O] are laid side by side for one product: it costs to read and write them once, and saves to
    read and write the sum [T, I], of `itemsize` bytes, for all but one of them.

    H200, 32,768 tokens: query, key and value of 0.5B 159 us so, 401 summed within the products, 563 cast and added; gate and
    up 940 within the products, 1,017 cast and added."""
    return 2 * 2 * sum(outputs) < 2 * itemsize * inputs * (len(outputs) - 1)


def lowered(
    weights: Sequence[Tensor], biases: Sequence[Tensor | None], compute: torch.dtype
) -> tuple[Tensor | None, list[Tensor], list[Tensor | None]]:
    """Weights and biases in `compute`: those of weights one below the other [S, I], None where they are in it already."""
    if weights[0].dtype == compute:
        return None, list(weights), [None if bias is None else bias.to(compute) for bias in biases]
    rows = [weight.shape[0] for weight in weights]
    low_SI = weights[0].new_empty(sum(rows), weights[0].shape[1], dtype=compute)
    there = [bias for bias in biases if bias is not None]
    low_S = weights[0].new_empty(sum(len(bias) for bias in there), dtype=compute)
    lows, low_there = list(low_SI.split(rows)), list(low_S.split([len(bias) for bias in there])) if there else []
    for low, weight in zip(lows, weights, strict=True):  # PyTorch's kernel for lists of them fills a part of the device
        low.copy_(weight)
    if there:
        torch._foreach_copy_(low_there, there)
    given = iter(low_there)
    return low_SI, lows, [None if bias is None else next(given) for bias in biases]


def product(left: Tensor, right: Tensor, dtype: torch.dtype, wide: bool) -> Tensor:
    """left @ right in `dtype`, unrounded where the device can."""
    if dtype == left.dtype:
        return left @ right
    return torch.mm(left, right, out_dtype=dtype) if wide else (left @ right).to(dtype)


def summed_products(lefts: Sequence[Tensor], rights: Sequence[Tensor], dtype: torch.dtype, wide: bool) -> Tensor:
    """The sum of left @ right in `dtype`, each added by its product where the device can."""
    total = product(lefts[0], rights[0], dtype, wide)
    for left, right in zip(lefts[1:], rights[1:], strict=True):
        if dtype == left.dtype:
            total.addmm_(left, right)
        elif wide:
            torch.ops.aten.addmm.dtype_out(total, left, right, dtype, out=total)
        else:
            total += (left @ right).to(dtype)
    return total


def column_sums(g_TO: Tensor, dtype: torch.dtype, wide: bool) -> Tensor:
    """[O]: a product with ones, which takes half of the time of a sum over so many rows (H200, [32768, 896]: 20 us, 41)."""
    if g_TO.device.type == "cpu":
        return g_TO.sum(0).to(dtype)
    return product(g_TO.new_ones(1, g_TO.shape[0]), g_TO, dtype, wide)[0]


def has_wide_sums(device: torch.device, compute: torch.dtype) -> bool:
    """Whether `device` multiplies operands of dtype `compute` into a float32 result, and adds to one: tried, not guessed."""
    if compute == torch.float32 or device.type == "meta":  # a skeleton computes nothing that could be tried
        return False
    left = torch.arange(256, device=device).remainder(13).to(compute).view(16, 16)
    try:
        found = summed_products([left, left], [left.t(), left], torch.float32, True)
    except (AttributeError, RuntimeError, TypeError):  # no kernel, one that refuses, no such argument
        return False
    right = left.double()
    return torch.equal(found.double(), right @ right.t() + right @ right)
