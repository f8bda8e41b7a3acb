"""The least time that an operator can take on a device: its FLOPs or its bytes, over what the device was seen to do.

From the shapes and types that the profiler keeps of an operator's arguments. It is the floor of what was executed: padding,
recomputation and intermediates that a better program would not make are in it. What is not understood has no floor.
After S. Williams, A. Waterman, D. Patterson, "Roofline" (2009).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SIZES = {
    "double": 8, "long int": 8, "long": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2, "short int": 2,
    "bool": 1, "unsigned char": 1, "signed char": 1, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
}  # fmt: skip
"""Bytes of a value, by the profiler's names of types."""

PRECISIONS = {
    "c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32", "double": "float64",
    "c10::Float8_e4m3fn": "float8", "c10::Float8_e5m2": "float8",
}  # fmt: skip
"""The same in PyTorch's words, as `Ceilings.matmul` has them."""

FACTORS = {
    "aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::addmm_": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2),
    "aten::_scaled_mm": (0, 1), "aten::mv": (0, 1), "aten::addmv": (1, 2),
}  # fmt: skip
"""Operators that multiply, the innermost, and where their factors stand."""

MOVED: Mapping[str, tuple[int | None, float]] = {
    "dynotune_gated_forward": (None, 1.5), "dynotune_gated_backward": (1, 5),
    "dynotune_gated_lora_forward": (2, 1.5), "dynotune_gated_lora_backward": (1, 5), "dynotune_rms_norm_forward": (None, 2),
    "dynotune_rms_norm_backward": (1, 3), "dynotune_sum_rms_norm_forward": (2, 2), "dynotune_sum_rms_norm_backward": (2, 2),
    "dynotune_rotary": (2, 2),
}  # fmt: skip
"""Our own kernels: how many of their operator's first arguments (None: all of them) they move, and how many times. What was
saved for a backward, or is written, is no argument: the gate's reads three tensors of the gradient's size and writes two."""

_PICK = {"aten::gather": 2, "aten::index_copy_": 3, "aten::index_add_": 3}
"""Operators that touch of a large tensor as many values as this argument has."""

_REDUCE = frozenset({"aten::sum", "aten::mean", "aten::amax", "aten::max", "aten::_local_scalar_dense", "aten::norm"})


@dataclass(frozen=True, slots=True)
class Rates:
    """What the device does at most."""

    matmul: Mapping[str, float]
    """FLOPs a second by precision."""

    memory: float | None
    """Bytes a second."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call needs."""

    flops: int
    bytes: int
    precision: str
    """Of the product; empty where it is none."""

    def seconds(self, rates: Rates) -> float | None:
        """The longer of both; None where a rate that counts is not known."""
        needed = [self.bytes / rates.memory] if rates.memory else []
        if self.flops:
            rate = rates.matmul.get(self.precision) or rates.matmul.get(
                "bfloat16" if self.precision == "float16" else ""
            )
            if not rate:
                return None
            needed.append(self.flops / rate)
        return max(needed, default=None)


def cost_of(name: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Cost | None:
    """Of one call of an operator, or of a kernel of Triton's under the compiler, which is told its tensors likewise. None
    where its shapes do not say."""
    if name in FACTORS:
        return _product(name, shapes, dtypes)
    if name.startswith("triton_"):
        return _moved(shapes, dtypes)
    if not name.startswith("aten::") or not shapes or not shapes[0]:
        return None
    if name in _PICK:
        return _picked(shapes[_PICK[name] :][:1], dtypes[0])
    read = _moved(shapes, dtypes)
    if read is None or not read.bytes:
        return None
    if name in ("aten::copy_", "aten::fill_", "aten::zero_") or name.split("::")[1].startswith("_foreach"):
        return read
    largest = max(math.prod(shape) * SIZES.get(dtype, 0) for shape, dtype in zip(shapes, dtypes, strict=False))
    written = 0 if name in _REDUCE else largest
    return Cost(0, read.bytes + written, "")


def _product(name: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Cost | None:
    first, second = FACTORS[name]
    if len(shapes) <= second or len(shapes[first]) < 2 or len(dtypes) <= second:
        return None
    a, b = shapes[first], shapes[second]
    *batch, m, k = a
    n = b[-1] if len(b) == len(a) else 1
    size = SIZES.get(dtypes[first])
    if size is None or not math.prod(a):
        return None
    times = math.prod(batch)
    moved = size * (math.prod(a) + math.prod(b) + times * m * n)
    if name == "aten::addmm_":  # what is added to is read too; `out` of others may not be
        moved += size * m * n
    return Cost(2 * times * m * n * k, moved, PRECISIONS.get(dtypes[first], ""))


def moved_by(kernel: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Cost | None:
    """Of a kernel in `MOVED`, by the arguments of the operator that launched it."""
    counted, times = MOVED[kernel]
    one = _moved(shapes[:counted], dtypes[:counted])
    return Cost(0, int(times * one.bytes), "") if one is not None else None


def _picked(shapes: Sequence[Sequence[int]], dtype: str) -> Cost | None:
    """Read and written once each. The index may be one that was widened, and is hardly read."""
    moved = 2 * sum(math.prod(shape) for shape in shapes if shape) * SIZES.get(dtype, 0)
    return Cost(0, moved, "") if moved else None


def _moved(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> Cost | None:
    """All arguments, once."""
    total = sum(math.prod(shape) * SIZES.get(dtype, 0) for shape, dtype in zip(shapes, dtypes, strict=False) if shape)
    return Cost(0, total, "") if total else None


def attention_flops(lengths: Sequence[int], layers: int, heads: int, head_dim: int, *, backward: bool) -> int:
    """What causal attention of these documents needs in all layers: two products of n * n / 2 pairs forward, and five for
    the backward pass of a flash kernel (it computes the scores again)."""
    pairs = sum(n * n for n in lengths) / 2
    return int(2 * pairs * heads * head_dim * layers * (2 + 5 * backward))


def attention_bytes(
    tokens: int, layers: int, heads: int, kv_heads: int, head_dim: int, size: int, *, backward: bool
) -> int:
    """What a flash kernel moves of that in all layers at least, each tensor once: q, k and v read, o and the log-sum-exp
    (float32) written; the backward pass reads these and the gradient of o, and writes those of q, k and v.

    size: bytes of a value. Of short documents it takes longer than `attention_flops`.
    """
    q, kv, sums = heads * head_dim * size, kv_heads * head_dim * size, 4 * heads
    forward = 2 * q + 2 * kv + sums
    return tokens * layers * (forward + (4 * q + 4 * kv + sums) * backward)
