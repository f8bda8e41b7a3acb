"""Matrix products in float32 or TF32 in a step that computes in 16 bits, and what a trace does not tell of them.

On a GPU such a product takes several times as long: one layer that leaves autocast costs what a speed-up gains. Those that
are meant to be so are none: with a vector (the angles of rotary embeddings), of a mixture's router, and the sum of the
gradient of the head's weight on a device that can only add in the precision of its operands.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from dynotune.measure.evidence import Evidence, Phase, Seen, Source

COMPUTATION = (Phase.FORWARD, Phase.BACKWARD)

SIXTEEN_BITS = ("bfloat16", "float16")

PRODUCTS = {
    "aten::mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::addmm_": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::bmm": (0, 1),
    "aten::baddbmm": (1, 2),
}
"""Operators that multiply, innermost (one that calls another may still have operands that it is about to cast), and where
their two factors stand."""

_FULL_PRECISION = ("float", "double")
_OF_16_BITS = r"^(?!.*(bf16|fp16|(?<![a-z\d])f16|h\d+gemm)).*"
_KERNELS = tuple(
    _OF_16_BITS + name for name in (r"sgemm", r"simt_", r"xmma_gemm_f32f32", r"xmma_gemm_f64f64", r"tf32", r"s1688gemm")
)
"""Of cuBLAS and CUTLASS, as far as their names say: single precision, TF32 included, and double. The step that tensor cores
take, 16 x 8 x 8, is in names of either: `ampere_bf16_s1688gemm_bf16_...` multiplies in 16 bits."""

_WRITTEN_BY_THE_COMPILER = (r"^triton_(tem|mm)_\w*mm",)
"""Matrix products as Triton's templates: their names do not tell of what, and no operator is around them."""


def in_full_precision(evidence: Evidence, compute: str | None = None) -> list[Seen]:
    """Operators and kernels of the forward and backward pass. Empty where `compute` (by default what the run says) has more
    than 16 bits."""
    if (compute or computes_in(evidence)) not in SIXTEEN_BITS:
        return []
    full = [one for one in _products(evidence) if _is_full(one)]
    routers = _routers(full, evidence)
    unmeant = (one for one in full if not (_is_meant(one, evidence) or id(one) in routers))
    return [*unmeant, *_kernels_beyond(evidence, full)]


def computes_in(evidence: Evidence) -> str:
    """The precision that the run's products are to have."""
    return str(evidence.facts.get("compute", "float32"))


def not_told(evidence: Evidence) -> str:
    """Why the trace does not say of every product in which precision it ran; empty where it does."""
    products = _products(evidence)
    if not products:
        return "no matrix product was seen"
    if untold := sum(one.count for one in products if not all(_types(one))):
        return f"the trace has no types of {untold} matrix products"
    if written := evidence.count(_WRITTEN_BY_THE_COMPILER, source=Source.KERNEL):
        return f"{written} matrix products were written by the compiler, and their names do not tell their precision"
    return ""


def _products(evidence: Evidence) -> list[Seen]:
    return [
        one
        for one in evidence.seen
        if one.source is Source.OPERATOR and one.phase in COMPUTATION and one.name in PRODUCTS
    ]


def _types(one: Seen) -> tuple[str, ...]:
    """Of both factors; empty words where the trace does not say."""
    return tuple(one.dtypes[i] if len(one.dtypes) > i else "" for i in PRODUCTS[one.name])


def _is_full(one: Seen) -> bool:
    return all(dtype in _FULL_PRECISION for dtype in _types(one))


def _is_meant(one: Seen, evidence: Evidence) -> bool:
    factors = _factors(one)
    if factors is None:
        return False
    left, right = factors
    if 1 in (*left[-2:], *right[-2:]):
        return True
    return len(left) == len(right) == 2 and _sums_the_heads_gradient(left, evidence)


def _factors(one: Seen) -> tuple[Sequence[int], Sequence[int]] | None:
    """Shapes of both; None where the trace does not say."""
    if len(one.shapes) <= max(PRODUCTS[one.name]):
        return None
    left, right = (one.shapes[i] for i in PRODUCTS[one.name])
    return left, right


def _routers(full: Iterable[Seen], evidence: Evidence) -> set[int]:
    """`id` of those that are a mixture's router's. A layer has one: where there are more of its shape in one place, they are
    something else, such as an adapter of as many ranks as there are experts."""
    alike: dict[tuple[Phase, str, int], list[Seen]] = {}
    for one in full:
        factors = _factors(one)
        if factors is not None and len(factors[0]) == len(factors[1]) == 2 and _of_a_router(*factors, evidence):
            alike.setdefault((one.phase, one.place, one.micro_batch), []).append(one)
    return {
        id(one)
        for (phase, _, _), every in alike.items()
        if sum(one.count for one in every) <= OF_A_ROUTER[phase]
        for one in every
    }


OF_A_ROUTER = {Phase.FORWARD: 1, Phase.BACKWARD: 3}
"""Products a layer: in the backward pass both gradients, and the logits again where the layer is computed again."""


def _of_a_router(left: Sequence[int], right: Sequence[int], evidence: Evidence) -> bool:
    """Whose logits, one for each expert, models keep in float32: T x D by D x E, and its two gradients."""
    experts = evidence.facts.get("experts")
    of_weight = left[0] == experts and experts not in evidence.facts.get("tokens", ())
    return experts is not None and (right[1] == experts or left[1] == experts or of_weight)


def _sums_the_heads_gradient(left: Sequence[int], evidence: Evidence) -> bool:
    """V x N by N x D. A head that computes in float32 is seen all the same: its logits have the vocabulary at the end."""
    vocabulary = evidence.facts.get("vocabulary")
    return vocabulary is not None and left[0] == vocabulary and vocabulary not in evidence.facts.get("tokens", ())


def _kernels_beyond(evidence: Evidence, full: Iterable[Seen]) -> list[Seen]:
    """Kernels in full precision where fewer operators were seen that account for them, so that others launched them."""
    accounted = Counter[tuple[Phase, str, int]]()
    for one in full:
        accounted[one.phase, one.place, one.micro_batch] += one.count
    kernels = [one for one in evidence.matching(_KERNELS, source=Source.KERNEL) if one.phase in COMPUTATION]
    total = Counter[tuple[Phase, str, int]]()
    for one in kernels:
        total[one.phase, one.place, one.micro_batch] += one.count
    beyond = {where for where, count in total.items() if count > accounted[where]}
    return [one for one in kernels if (one.phase, one.place, one.micro_batch) in beyond]
