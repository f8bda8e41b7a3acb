"""Matrix products of low-precision operands whose result stays in float32."""

from functools import cache

import torch
from torch import Tensor


def result_precision(operand: Tensor) -> torch.dtype:
    """What `product` gives: float32 where the device can write what it accumulated, else the operands' precision."""
    return torch.float32 if _low(operand) and writes_float32(operand.device, operand.dtype) else operand.dtype


def product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """a @ b into `out`, which has `result_precision`."""
    if out.dtype is a.dtype:
        torch.mm(a, b, out=out)
    else:
        torch.mm(a, b, out_dtype=out.dtype, out=out)


def add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """`total` + a @ b, summed in place and in float32 (float64 for such operands). None is zero.

    A device that cannot write float32 gets float32 copies of the operands: slower, not less exact.
    """
    if _low(a):
        if writes_float32(a.device, a.dtype):
            if total is None:
                return torch.mm(a, b, out_dtype=torch.float32)
            return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
        a, b = a.float(), b.float()
    return torch.mm(a, b) if total is None else total.addmm_(a, b)


@cache
def writes_float32(device: torch.device, precision: torch.dtype) -> bool:
    """Whether torch multiplies `precision` matrices into a float32 result on `device`: tried once."""
    a = torch.ones(16, 16, device=device, dtype=precision)
    total = torch.ones(16, 16, device=device)
    try:
        torch.mm(a, a, out_dtype=torch.float32, out=total)
        torch.addmm(total, a, a, out_dtype=torch.float32, out=total)
    except (NotImplementedError, RuntimeError, TypeError):
        return False
    return True


def _low(a: Tensor) -> bool:
    return a.dtype.itemsize < torch.float32.itemsize
