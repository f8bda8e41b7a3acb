"""Rows of logits to losses and gradients in one Triton kernel. Imported only where Triton is wanted.

One program a row, two passes over it: the first finds the normaliser (the online softmax of Milakov and Gimelshein,
arXiv 1805.02867, kept per lane), the second writes the gradient in the logits' place.
Legend of shapes: N rows, V vocabulary.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# A kernel's annotations are Triton's language, not Python's.

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.errors import TritonError

from dynotune.model.head.logit_map import LogitMap
from dynotune.objectives.row_loss import RowLoss

FAILURES: tuple[type[Exception], ...] = (TritonError, OSError, RuntimeError, AttributeError, TypeError)
"""What a Triton that does not fit this machine raises: no compiler, no driver, another version's language."""

BLOCK, WARPS = 8192, 16
PRECISIONS = (torch.bfloat16, torch.float16, torch.float32)


def rows_in_triton(
    z_NV: Tensor,
    targets_N: Tensor,
    loss: RowLoss,
    logits: LogitMap,
    form_gradient: bool,
    out_3N: Tensor,
    block: int = BLOCK,
    warps: int = WARPS,
) -> None:
    """As `Rows` says, for the precisions above. A target outside of the vocabulary gives NaN."""
    assert z_NV.dtype in PRECISIONS, z_NV.dtype
    assert z_NV.stride(1) == 1, z_NV.stride()
    assert out_3N.stride(1) == 1, out_3N.stride()
    n, vocabulary = z_NV.shape
    if n == 0:
        return
    _row_kernel[(n,)](
        z_NV,
        z_NV.stride(0),
        targets_N,
        out_3N,
        out_3N.stride(0),
        vocabulary,
        loss.smoothing,
        logits.scale,
        1.0 if logits.cap is None else logits.cap,
        SMOOTHED=loss.smoothing != 0,
        BY_PROBABILITY=loss.by_probability,
        CAPPED=logits.cap is not None,
        FORM=form_gradient,
        BLOCK=min(block, triton.next_power_of_2(vocabulary)),
        num_warps=warps,
    )


@triton.jit
def _logits(z, scale, cap, CAPPED: tl.constexpr):
    x = z.to(tl.float32) * scale
    if CAPPED:
        # tanh(u) = 1 - 2 / (exp(2u) + 1): both ends are right, where exp(2u) is 0 or infinite.
        x = cap * (1.0 - 2.0 / (tl.exp(2.0 * x / cap) + 1.0))
    return x


@triton.jit
def _row_kernel(
    Z,
    z_stride,
    Targets,
    Out,
    out_stride,
    V,
    smoothing,
    scale,
    cap,
    SMOOTHED: tl.constexpr,
    BY_PROBABILITY: tl.constexpr,
    CAPPED: tl.constexpr,
    FORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # row * stride passes 2 ** 31
    z = Z + row * z_stride
    target = tl.load(Targets + row).to(tl.int32)
    inside = (target >= 0) & (target < V)
    lanes = tl.arange(0, BLOCK)
    own = _logits(tl.load(z + target, mask=inside, other=float("nan")), scale, cap, CAPPED)

    # A finite floor: -inf minus -inf would be NaN in lanes that have seen nothing but masked logits.
    top = tl.full((BLOCK,), -3.4e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    beaten = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, V, BLOCK):
        j = first + lanes
        x = _logits(tl.load(z + j, mask=j < V, other=0.0), scale, cap, CAPPED)
        x = tl.where(j < V, x, float("-inf"))
        beaten = beaten | ((x > own) | ((x == own) & (j < target))).to(tl.int32)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    highest = tl.max(top, 0)
    normaliser = highest + tl.log(tl.sum(total * tl.exp(top - highest), 0))
    own_logp = own - normaliser
    weight = 1.0
    if BY_PROBABILITY:
        weight = tl.exp(own_logp)

    tl.debug_barrier()  # every warp has read the row before any writes to it
    entropy = tl.zeros((BLOCK,), tl.float32)
    logps = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, V, BLOCK):
        j = first + lanes
        x = _logits(tl.load(z + j, mask=j < V, other=0.0), scale, cap, CAPPED)
        logp = tl.where(j < V, x - normaliser, float("-inf"))
        p = tl.exp(logp)
        entropy -= tl.where(p == 0.0, 0.0, p * logp)
        if SMOOTHED:
            logps += tl.where(j < V, logp, 0.0)
        if FORM:
            gradient = p - tl.where(j == target, 1.0 - smoothing, 0.0)
            if SMOOTHED:
                gradient -= smoothing / V
            gradient *= weight * scale
            if CAPPED:
                gradient *= 1.0 - (x / cap) * (x / cap)
            tl.store(z + j, gradient.to(Z.dtype.element_ty), mask=j < V)

    nll = -own_logp
    if SMOOTHED:
        nll = (1.0 - smoothing) * nll - smoothing * tl.sum(logps, 0) / V
    tl.store(Out + row, weight * nll)
    tl.store(Out + out_stride + row, 1.0 - tl.max(beaten, 0).to(tl.float32))
    tl.store(Out + 2 * out_stride + row, tl.sum(entropy, 0))
