"""One LoRA linear as one autograd node: y = x W' + bias + s (xd A') B', three products forward and five backward.

The method is Unsloth's and LoRA's own algebra (Hu et al. 2021): the adapter's output is added by the product that makes it
(`addmm`), so no pass over y only scales or adds. Its gradients go to the float32 weights straight from the product.

Legend of shapes: T tokens, I inputs, O outputs, R rank; a leading-dimensions input is folded to T.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class LoraLinear(torch.autograd.Function):
    """`LoraLinear.apply(x, dropped, weight, bias, A, B, a, b, scale, wide)`, see `forward`.

    A profile shows it under its name: one `LoraLinear` and one `LoraLinearBackward` a call.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        dropped: Tensor | None,
        weight_OI: Tensor,
        bias_O: Tensor | None,
        A_RI: Tensor,
        B_OR: Tensor,
        a_RI: Tensor | None,
        b_OR: Tensor | None,
        scale: float,
        wide: bool,
    ) -> Tensor:
        """`x` [..., I] in the dtype of `weight`, gives [..., O] in the same.

        `dropped` is x after dropout where there is any, None otherwise. `A`, `B` are the trained weights, which get the
        gradients in their own dtype; `a`, `b` are their values in the dtype of x, None where that is their own. `wide` says
        that the device has products of low-precision operands with a float32 result. Weight and bias are frozen.
        """
        a_RI, b_OR = A_RI if a_RI is None else a_RI, B_OR if b_OR is None else b_OR
        x_TI = x.reshape(-1, x.shape[-1])
        dropped_TI = x_TI if dropped is None else dropped.reshape(x_TI.shape)
        y_TO = F.linear(x_TI, weight_OI, bias_O)
        u_TR = F.linear(dropped_TI, a_RI)
        y_TO.addmm_(u_TR, b_OR.t(), alpha=scale)
        # A and B are saved for their shapes, and so that torch refuses a backward after they were changed.
        ctx.save_for_backward(dropped_TI, u_TR, weight_OI, A_RI, B_OR, a_RI, b_OR)
        ctx.scale, ctx.wide, ctx.has_dropout = scale, wide, dropped is not None
        return y_TO.view(*x.shape[:-1], y_TO.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """`grad` [..., O]. Whatever is not asked for is not computed; nothing saved is written to."""
        dropped_TI, u_TR, weight_OI, A_RI, B_OR, a_RI, b_OR = ctx.saved_tensors
        scale = ctx.scale
        needs_x, needs_dropped, _, _, needs_A, needs_B = ctx.needs_input_grad[:6]
        grad_TO = grad.reshape(-1, grad.shape[-1])
        shape = (*grad.shape[:-1], dropped_TI.shape[-1])
        dx = d_dropped = dA_RI = dB_OR = None
        into_adapter = needs_dropped if ctx.has_dropout else needs_x
        if needs_A or into_adapter:
            v_TR = grad_TO @ b_OR
        if needs_x:
            dx_TI = grad_TO @ weight_OI
            if not ctx.has_dropout:
                dx_TI.addmm_(v_TR, a_RI, alpha=scale)
            dx = dx_TI.view(shape)
        if needs_dropped and ctx.has_dropout:
            d_dropped = scaled_product(dropped_TI, v_TR, a_RI, scale, False).view(shape)
        if needs_B:
            dB_OR = scaled_product(B_OR, grad_TO.t(), u_TR, scale, ctx.wide)
        if needs_A:
            dA_RI = scaled_product(A_RI, v_TR.t(), dropped_TI, scale, ctx.wide)
        return dx, d_dropped, None, None, dA_RI, dB_OR, None, None, None, None


def scaled_product(like: Tensor, left: Tensor, right: Tensor, scale: float, wide: bool) -> Tensor:
    """scale * left @ right in the shape and dtype of `like`, whose values are not read (BLAS's beta = 0).

    Where `wide`, operands of lower precision give a float32 result without being rounded in between.
    """
    if like.dtype == left.dtype:
        return torch.addmm(like, left, right, beta=0, alpha=scale)
    if wide:
        return torch.addmm(like, left, right, beta=0, alpha=scale, out_dtype=like.dtype)
    return (left @ right).to(like.dtype).mul_(scale)


def has_wide_products(device: torch.device, compute: torch.dtype) -> bool:
    """Whether `device` multiplies operands of dtype `compute` into a float32 result: tried, not guessed from a version."""
    if compute == torch.float32:
        return False
    left = torch.arange(32, dtype=compute, device=device).view(8, 4)
    like = torch.full((8, 8), float("nan"), device=device)
    try:
        product = scaled_product(like, left, left.t(), 0.5, True)
    except (NotImplementedError, RuntimeError, TypeError):  # no kernel, a kernel that refuses, no such argument
        return False
    return torch.equal(product, 0.5 * (left.float() @ left.float().t()))
