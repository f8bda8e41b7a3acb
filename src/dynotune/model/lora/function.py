"""LoRA linears of one input as one autograd node: y = x W' + bias + s (xd A') B', three products forward and five backward.

The algebra is LoRA's (Hu et al. 2021), the order of products the one that Unsloth made known: the adapter's output is added
by the product that makes it (`addmm`), so no pass over y only scales or adds. Gradients reach the float32 weights straight
from the product. Linears that read the same x (query, key and value; gate and up) share the products with A and the sum of
their input gradients.

Legend of shapes: T tokens, I inputs, O outputs, R ranks of all linears side by side; leading dimensions are folded to T.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dynotune.model.branches import fork
from dynotune.model.lora.left_out import LeftOut

FIXED = 6
"""Arguments of `LoraLinears` before those that come once a linear."""


class LoraLinears(torch.autograd.Function):
    """`LoraLinears.apply(x, dropped, a, scale, wide, left_out, *weights, *biases, *As, *Bs, *bs)`, see `forward`.

    A profile shows it under its name: one `LoraLinears` and one `LoraLinearsBackward` for each group of linears.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        dropped: Tensor | None,
        a_RI: Tensor | None,
        scale: float,
        wide: bool,
        left_out: LeftOut | None,
        *parts: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """`x` [..., I] in the dtype of the weights; gives y [..., O] of each linear in the same.

        `dropped` is x after dropout where there is any, None otherwise. Of each linear: frozen weight [O, I] and bias [O]
        or None, the trained A [r, I] and B [O, r], which get the gradients in their own dtype, and `b`, the values of B in
        the dtype of x; `a` are those of all A, one below the other. Where A and B are in that dtype already, `a` and `b` are
        None. `wide`: the device has products of low-precision operands with a float32 result. `left_out`: whose neighbour
        adds what, None where nobody does; its gradient cannot be left out where there is dropout.
        """
        weights, biases, As, Bs, bs = split(parts)
        if a_RI is None:
            a_RI, bs = torch.cat(As) if len(As) > 1 else As[0], Bs
        x_TI = x.reshape(-1, x.shape[-1])
        dropped_TI = x_TI if dropped is None else dropped.reshape(x_TI.shape)
        beside = fork(x_TI)
        u_TR = beside.soon(F.linear, dropped_TI, a_RI)
        us = by_rank(u_TR, [B.shape[1] for B in Bs])
        adds = left_out is None or left_out.of != "outputs"
        ys = []
        for weight_OI, bias_O, u, b in zip(weights, biases, us, bs, strict=True):
            y_TO = F.linear(x_TI, weight_OI, bias_O)
            beside.join()
            if adds:
                y_TO.addmm_(u, b.t(), alpha=scale)
            ys.append(y_TO.view(*x.shape[:-1], y_TO.shape[-1]))
        # A and B are saved for their shapes, and so that torch refuses a backward after they were changed; x only where it
        # is read again: it may be the widest tensor of a layer.
        _, _, needs_A, _, _ = split(ctx.needs_input_grad[FIXED:])
        read = dropped is not None or any(needs_A)
        ctx.save_for_backward(dropped_TI if read else None, u_TR, a_RI, *weights, *As, *Bs, *bs)
        ctx.scale, ctx.wide, ctx.has_dropout, ctx.shape = scale, wide, dropped is not None, x.shape
        ctx.left_out = None
        if left_out is not None:
            left_out.scale = scale
            if not adds:
                # Without a gradient of their own: theirs is made here, and the neighbour uses no weight a second time.
                left_out.low_TR, left_out.weights = u_TR, tuple(b.detach() for b in bs)
            elif dropped is None:
                ctx.left_out = left_out
        return tuple(ys)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """`grads` [..., O] of each linear. What is not asked for is not computed; nothing saved is written to."""
        dropped_TI, u_TR, a_RI, *saved = ctx.saved_tensors
        n, scale, wide = len(grads), ctx.scale, ctx.wide
        weights, As, Bs, bs = saved[:n], saved[n : 2 * n], saved[2 * n : 3 * n], saved[3 * n :]
        needs_x, needs_dropped = ctx.needs_input_grad[:2]
        _, _, needs_A, needs_B, _ = split(ctx.needs_input_grad[FIXED:])
        gs = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
        ranks = [B.shape[1] for B in Bs]
        dx = d_dropped = None
        into_adapter = needs_dropped if ctx.has_dropout else needs_x
        beside = fork(gs[0])
        if into_adapter or any(needs_A):
            v_TR = beside.soon(side_by_side, gs, bs, ranks)
        if needs_x:
            dx_TI = gs[0] @ weights[0]
            for g_TO, weight_OI in zip(gs[1:], weights[1:], strict=True):
                dx_TI.addmm_(g_TO, weight_OI)
            beside.join()
            if ctx.left_out is not None:
                ctx.left_out.low_TR, ctx.left_out.weights = v_TR, (a_RI,)
            elif not ctx.has_dropout:
                dx_TI.addmm_(v_TR, a_RI, alpha=scale)
            dx = dx_TI.view(ctx.shape)
        if needs_dropped and ctx.has_dropout:
            beside.join()
            d_dropped = scaled_product(dropped_TI, v_TR, a_RI, scale, False).view(ctx.shape)
        dAs: Any = (None,) * n
        if any(needs_A):
            like_RI = As[0] if n == 1 else As[0].new_empty(a_RI.shape)
            dA_RI = beside.late(scaled_product, like_RI, v_TR.t(), dropped_TI, scale, wide)
            dAs = dA_RI.split(ranks) if n > 1 else (dA_RI,)
            dAs = [dA if needs else None for dA, needs in zip(dAs, needs_A, strict=True)]
        dBs = [
            beside.late(scaled_product, B_OR, g_TO.t(), u, scale, wide) if needs else None
            for B_OR, g_TO, u, needs in zip(Bs, gs, by_rank(u_TR, ranks), needs_B, strict=True)
        ]
        frozen = (None,) * n
        return dx, d_dropped, None, None, None, None, *frozen, *frozen, *dAs, *dBs, *frozen


def split(parts: Any) -> Any:
    """The five kinds of what comes once a linear."""
    n = len(parts) // 5
    return [parts[i * n : (i + 1) * n] for i in range(5)]


def by_rank(u_TR: Tensor, ranks: list[int]) -> tuple[Tensor, ...]:
    """Views of the columns of each linear."""
    return u_TR.split(ranks, dim=1) if len(ranks) > 1 else (u_TR,)


def side_by_side(gs: list[Tensor], bs: list[Tensor], ranks: list[int]) -> Tensor:
    """[g1 b1 | g2 b2 | ...] [T, R], each product written to its place."""
    if len(gs) == 1:
        return gs[0] @ bs[0]
    if torch.compiler.is_compiling():  # the compiler finds the places itself, and refuses to be told
        return torch.cat([g_TO @ b for g_TO, b in zip(gs, bs, strict=True)], dim=1)
    v_TR = gs[0].new_empty(gs[0].shape[0], sum(ranks))
    for g_TO, b, place in zip(gs, bs, by_rank(v_TR, ranks), strict=True):
        torch.mm(g_TO, b, out=place)
    return v_TR


def scaled_product(like: Tensor, left: Tensor, right: Tensor, scale: float, wide: bool) -> Tensor:
    """scale * left @ right in the shape and dtype of `like`, whose values are not read (BLAS's beta = 0).

    Where `wide`, operands of lower precision give a float32 result without being rounded in between.
    """
    as_they_are = like.dtype == left.dtype
    if torch.compiler.is_compiling() or not (wide or as_they_are):
        # Compiled code may read what beta = 0 multiplies, and folds the scale into the product by itself.
        product = torch.mm(left, right, out_dtype=like.dtype) if wide and not as_they_are else left @ right
        return product.to(like.dtype) * scale
    if as_they_are:
        return torch.addmm(like, left, right, beta=0, alpha=scale)
    return torch.addmm(like, left, right, beta=0, alpha=scale, out_dtype=like.dtype)


def has_wide_products(device: torch.device, compute: torch.dtype) -> bool:
    """Whether `device` multiplies operands of dtype `compute` into a float32 result: tried, not guessed from a version."""
    if compute == torch.float32 or device.type == "meta":  # a skeleton computes nothing that could be tried
        return False
    left = torch.arange(32, dtype=compute, device=device).view(8, 4)
    like = torch.full((8, 8), float("nan"), device=device)
    try:
        product = scaled_product(like, left, left.t(), 0.5, True)
    except (NotImplementedError, RuntimeError, TypeError):  # no kernel, a kernel that refuses, no such argument
        return False
    return torch.equal(product, 0.5 * (left.float() @ left.float().t()))
