"""What must not be seen in a traced step, for speed-ups to expect: found by operators' shapes and types, or by kernels.

Each function gives an `Absent`. What they look for was taken from traces of transformers' own paths, which the tests take
again: a mask that PyTorch or transformers names otherwise one day is noticed there.

Legend of shapes: T tokens of a micro-batch, n tokens of a document, D hidden size, V vocabulary.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.speedups.expectation import Absent
from dynotune.speedups.full_precision import COMPUTATION, PRODUCTS, in_full_precision

if TYPE_CHECKING:
    import torch

_MASK_OF = {
    "aten::scaled_dot_product_attention": 3,
    "aten::_scaled_dot_product_attention_math": 3,
    "aten::_scaled_dot_product_attention_math_for_mps": 3,
    "aten::_scaled_dot_product_efficient_attention": 3,
    "aten::_scaled_dot_product_cudnn_attention": 3,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 5,
    "aten::_scaled_dot_product_fused_attention_overrideable": 3,
}
"""Where these operators take a mask or bias, behind query, key and value."""

_MASK_MADE_BY = frozenset(
    {
        "aten::__and__",
        "aten::bitwise_and",
        "aten::logical_and",
        "aten::masked_fill",
        "aten::masked_fill_",
        "aten::where",
    }
)

_SOFTMAX = frozenset({"aten::_softmax", "aten::_safe_softmax"})

_TAKES_LOGITS = frozenset(
    {
        "aten::_log_softmax", "aten::_log_softmax_backward_data", "aten::_softmax", "aten::cross_entropy_loss", "aten::div",
        "aten::exp", "aten::gather", "aten::log_softmax", "aten::logsumexp", "aten::mul", "aten::nll_loss_backward",
        "aten::nll_loss_forward", "aten::sub", "aten::tanh",
    }
)  # fmt: skip


def dense_masks() -> Absent:
    """No attention with a mask of a value for each pair of tokens, and no such mask made.

    A mask that a micro-batch of one document is computed with inside of packed attention is none: it has two dimensions.
    """

    def found(evidence: Evidence) -> str | None:
        tokens = evidence.facts.get("tokens", [])
        taken = [one for one in _operators(evidence, COMPUTATION) if _takes_a_dense_mask(one)]
        made = [one for one in _operators(evidence, COMPUTATION) if _makes_a_dense_mask(one, tokens)]
        return in_words([*taken, *made])

    return Absent("dense attention mask", found)


def math_attention() -> Absent:
    """No attention written out: no weights of n x n in memory."""

    def found(evidence: Evidence) -> str | None:
        return in_words(one for one in _operators(evidence, COMPUTATION) if _writes_attention_out(one))

    return Absent("attention written out", found)


def apart_from(absent: Absent, modules: Iterable[str]) -> Absent:
    """The same, but for what is at these modules or in them."""
    inside = tuple(modules)
    if not inside:
        return absent

    def found(evidence: Evidence) -> str | None:
        seen = (one for one in evidence.seen if not any(f"{one.place}.".startswith(f"{name}.") for name in inside))
        return absent.found(replace(evidence, seen=tuple(seen)))

    return Absent(absent.what, found)


def full_precision_products(compute: "torch.dtype | None" = None) -> Absent:
    """No matrix product in float32 or TF32 where `compute` (by default what the run says) has 16 bits."""
    said = str(compute).removeprefix("torch.") if compute is not None else None
    return Absent("matrix product in full precision", lambda evidence: in_words(in_full_precision(evidence, said)))


def full_logits() -> Absent:
    """No logits of as many rows as the micro-batch has tokens, where fewer of them predict a label. Where all do
    (documents labelled throughout without padding, sides of a pair that label what they share) nothing is said."""

    def found(evidence: Evidence) -> str | None:
        vocabulary, tokens = evidence.facts.get("vocabulary"), evidence.facts.get("tokens", [])
        if not vocabulary:
            return None
        labels = evidence.facts.get("labels", [0] * len(tokens))
        hidden = {
            one.shapes[0][1]
            for one in _operators(evidence, (Phase.FORWARD,))
            if one.name == "aten::embedding" and one.shapes and one.shapes[0][:1] == (vocabulary,)
        }
        return in_words(
            one
            for one in _operators(evidence, COMPUTATION)
            if 0 <= one.micro_batch < len(tokens)
            and labels[one.micro_batch] < tokens[one.micro_batch]
            and any(rows >= tokens[one.micro_batch] for rows in _rows_of_logits(one, vocabulary, hidden))
        )

    return Absent("logits of all tokens", found)


def host_waits(*phases: Phase) -> Absent:
    """The host never stands still for the device, in these phases (by default forward, backward and update).

    On the CPU, where nobody waits, what would be a wait counts in forward and backward: a value that Python asks for.
    The optimizers of PyTorch keep their count of steps on the host, so reading it tells nothing there.
    """

    def found(evidence: Evidence) -> str | None:
        counts = Counter[str]()
        for wait in waits_of_host(evidence, phases or (*COMPUTATION, Phase.UPDATE)):
            counts[named(wait["name"], (), wait["phase"], wait["place"])] += wait["count"]
        return counted(counts)

    return Absent("wait of the host", found)


def waits_of_host(evidence: Evidence, phases: Iterable[Phase]) -> list[Mapping[str, Any]]:
    """As `Evidence.facts["waits_of_host"]` has them, those in these phases that count on this device."""
    on_gpu, wanted = evidence.device == "cuda", {str(phase) for phase in phases}

    def counts(wait: Mapping[str, Any]) -> bool:
        in_python = wait["name"].startswith("aten::")
        return not in_python if on_gpu else in_python and wait["phase"] != Phase.UPDATE

    return [one for one in evidence.facts.get("waits_of_host", []) if one["phase"] in wanted and counts(one)]


def _operators(evidence: Evidence, phases: Iterable[Phase]) -> Iterator[Seen]:
    return (one for one in evidence.seen if one.source is Source.OPERATOR and one.phase in phases)


def _takes_a_dense_mask(one: Seen) -> bool:
    index = _MASK_OF.get(one.name)
    if index is None or len(one.shapes) <= index or len(one.shapes[index]) < 2:
        return False
    queries, keys = one.shapes[0][-2], one.shapes[1][-2]
    return queries > 1 and one.shapes[index][-2:] == (queries, keys)


def _makes_a_dense_mask(one: Seen, tokens: list[int]) -> bool:
    """Masks are of four dimensions and bool where transformers makes them; a layer's activations never are."""
    if one.name not in _MASK_MADE_BY or not 0 <= one.micro_batch < len(tokens):
        return False
    T = tokens[one.micro_batch]
    arguments = zip(one.shapes, one.dtypes, strict=False)
    return any(len(shape) == 4 and shape[2:] == (T, T) and dtype == "bool" for shape, dtype in arguments)


def _writes_attention_out(one: Seen) -> bool:
    if one.name == "aten::_scaled_dot_product_attention_math":
        return True
    shape = one.shapes[0] if one.shapes else ()
    return one.name in _SOFTMAX and len(shape) >= 3 and shape[-1] == shape[-2] > 1


def _rows_of_logits(one: Seen, vocabulary: int, hidden: set[int]) -> Iterator[int]:
    """Rows of what this operator takes or makes, where that has the vocabulary as its last dimension."""
    if one.name in _TAKES_LOGITS:
        yield from (math.prod(shape[:-1]) for shape in one.shapes if len(shape) > 1 and shape[-1] == vocabulary)
    if one.name in PRODUCTS:
        left, right = (one.shapes[i] if len(one.shapes) > i else () for i in PRODUCTS[one.name])
        # The gradient of the head's weight may have the vocabulary last, too; what is summed over tells them apart.
        if len(left) > 1 and len(right) > 1 and right[-1] == vocabulary and left[-1] in hidden:
            yield math.prod(left[:-1])


def in_words(found: Iterable[Seen]) -> str | None:
    """Names, largest shapes and places, the most frequent first; None where there are none."""
    counts = Counter[str]()
    for one in found:
        counts[named(one.name, max(one.shapes, key=math.prod, default=()), one.phase, one.place)] += one.count
    return counted(counts)


def named(name: str, shape: Sequence[int], phase: str, place: str) -> str:
    """`aten::mm of 48 x 32 (forward, layers.0.mlp)`."""
    of = f" of {' x '.join(map(str, shape))}" if shape else ""
    return f"{name[:80]}{of} ({phase}, {place})" if place else f"{name[:80]}{of} ({phase})"


def counted(counts: Counter[str]) -> str | None:
    """The first three, each with its count, and how many more there are; None where there are none."""
    if not counts:
        return None
    first = ", ".join(f"{what} x {count}" for what, count in counts.most_common(3))
    return first if len(counts) <= 3 else f"{first} and {len(counts) - 3} more"
