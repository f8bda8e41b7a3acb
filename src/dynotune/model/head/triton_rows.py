"""Rows of logits to losses and gradients in one Triton kernel. Imported only where Triton is wanted.

One program a row, two passes over it: the first finds the normaliser (the online softmax of Milakov and Gimelshein,
arXiv 1805.02867, kept per lane), the second writes the gradient in the logits' place. It begins with what was read last, and
lets go of what it has written, so that a part of the row is still in the cache: 972 us became 860 and 731 became 606.
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

GROUP = 8
LARGE = 65_536
"""Words from which on a row is more than stays in the cache while it is read a second time."""


def sizes(vocabulary: int) -> tuple[int, int]:
    """Elements of a block and warps of a program, the fastest of eight each on an H200: 4,096 rows of 151,936 in 860 us
    (16 warps: 901), 16,384 rows of 32,000 in 606 (blocks of 8,192 and 16 warps: 748)."""
    return (8192, 32) if vocabulary >= LARGE else (4096, 8)


PRECISIONS = (torch.bfloat16, torch.float16, torch.float32)

_LOWEST: tl.constexpr = tl.constexpr(
    -3.4028234663852886e38
)  # finite: minus infinity times 0, or minus itself, would be NaN
_LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)  # exp2 is the instruction that the device has


def rows_in_triton(
    z_NV: Tensor,
    targets_N: Tensor,
    loss: RowLoss,
    logits: LogitMap,
    form_gradient: bool,
    out_3N: Tensor,
    block: int | None = None,
    warps: int | None = None,
    group: int = GROUP,
) -> None:
    """As `Rows` says, for the precisions above. A target outside of the vocabulary gives NaN."""
    assert z_NV.dtype in PRECISIONS, z_NV.dtype
    assert z_NV.stride(1) == 1, z_NV.stride()
    assert out_3N.stride(1) == 1, out_3N.stride()
    n, vocabulary = z_NV.shape
    if n == 0:
        return
    fastest = sizes(vocabulary)
    block = min(block or fastest[0], triton.next_power_of_2(vocabulary))
    dynotune_head_rows[(n,)](
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
        SCALED=logits.scale != 1,
        CAPPED=logits.cap is not None,
        FORM=form_gradient,
        BLOCK=block,
        GROUP=min(group, block),
        num_warps=warps or fastest[1],
    )


@triton.jit
def _logits(z, scale, cap, SCALED: tl.constexpr, CAPPED: tl.constexpr):
    x = z.to(tl.float32)
    if SCALED:
        x = x * scale
    if CAPPED:
        # tanh(u) = 1 - 2 / (exp(2u) + 1): both ends are right, where exp(2u) is 0 or infinite.
        x = cap * (1.0 - 2.0 / (tl.exp(2.0 * x / cap) + 1.0))
    return x


# How many label tokens a micro-batch has decides `out_stride`, and where `Targets` and `Out` begin. Compiled for each
# divisibility of these, the kernel would be made anew in whatever step first meets one: half a second, behind the warm-up.
@triton.jit(do_not_specialize=["out_stride"], do_not_specialize_on_alignment=["Targets", "Out"])
def dynotune_head_rows(
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
    SCALED: tl.constexpr,
    CAPPED: tl.constexpr,
    FORM: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # row * stride passes 2 ** 31
    z = Z + row * z_stride
    target = tl.load(Targets + row).to(tl.int32)
    inside = (target >= 0) & (target < V)
    own = _logits(tl.load(z + target, mask=inside, other=float("nan")), scale, cap, SCALED, CAPPED)

    # A lane is a group of neighbours that one thread holds: its maximum costs no exchange, and an exponential a group
    # replaces one an element where the running sum is rescaled.
    LANES: tl.constexpr = BLOCK // GROUP
    places = tl.arange(0, LANES)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    top = tl.full((LANES,), _LOWEST, tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    before = tl.full(
        (), _LOWEST, tl.float32
    )  # of what stands before the target: the first of equal logits is the largest
    for first in range(0, V, BLOCK):
        j = first + places
        x = _logits(tl.load(z + j, mask=j < V, other=0.0), scale, cap, SCALED, CAPPED)
        x = tl.where(j < V, x, float("-inf"))
        if (first <= target) & (target < first + BLOCK):
            before = tl.maximum(tl.max(top, 0), tl.max(tl.max(tl.where(j < target, x, float("-inf")), 1), 0))
        higher = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp2((top - higher) * _LOG2E) + tl.sum(tl.exp2((x - higher[:, None]) * _LOG2E), 1)
        top = higher
    highest = tl.max(top, 0)
    # Taken off one after the other: their sum would lose the logarithm beside a logit of large magnitude.
    log_total = tl.log(tl.sum(total * tl.exp2((top - highest) * _LOG2E), 0))
    own_logp = own - highest - log_total
    weight = 1.0
    if BY_PROBABILITY:
        weight = tl.exp(own_logp)

    tl.debug_barrier()  # every warp has read the row before any writes to it
    entropy = tl.zeros((LANES,), tl.float32)
    logps = tl.zeros((LANES,), tl.float32)
    blocks = tl.cdiv(V, BLOCK)
    for one in range(blocks):
        first = (blocks - 1 - one) * BLOCK
        j = first + places
        x = _logits(tl.load(z + j, mask=j < V, other=0.0), scale, cap, SCALED, CAPPED)
        logp = tl.where(j < V, x - highest - log_total, float("-inf"))
        p = tl.exp2(logp * _LOG2E)
        entropy -= tl.sum(p * tl.maximum(logp, _LOWEST), 1)
        if SMOOTHED:
            logps += tl.sum(tl.where(j < V, logp, 0.0), 1)
        if FORM:
            gradient = p - tl.where(j == target, 1.0 - smoothing, 0.0)
            if SMOOTHED:
                gradient -= smoothing / V
            if BY_PROBABILITY:
                gradient *= weight
            if SCALED:
                gradient *= scale
            if CAPPED:
                gradient *= 1.0 - (x / cap) * (x / cap)
            tl.store(z + j, gradient.to(Z.dtype.element_ty), mask=j < V, eviction_policy="evict_first")

    nll = -own_logp
    if SMOOTHED:
        nll = (1.0 - smoothing) * nll - smoothing * tl.sum(logps, 0) / V
    tl.store(Out + row, weight * nll)
    tl.store(Out + out_stride + row, ((before < own) & (highest <= own)).to(tl.float32))
    tl.store(Out + 2 * out_stride + row, tl.sum(entropy, 0))
