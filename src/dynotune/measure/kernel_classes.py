"""To which class of work a kernel or an operator belongs: by its name, then by where it ran and on what.

A name says what a kernel does (a product, an attention, a copy), not what for: the product of the LM head, of an adapter
and of a layer may be the same kernel. So the name gives a `Trait`, and module, shapes and phase give the `Work`. The rules
are tried in order and the first that finds something decides; the tests hold them against names from real traces.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from dynotune.measure.evidence import Phase, Source


class Work(StrEnum):
    """Classes of a step's time. Each instant of a step belongs to one."""

    GEMM = "GEMM"
    """Matrix products of layers."""

    ATTENTION = "attention"
    HEAD = "head and loss"
    ELEMENTWISE = "norms and elementwise"
    LORA = "LoRA"
    OPTIMIZER = "optimizer"
    COPIES = "copies"
    """Between host and device, on the device, and casts."""

    COMMUNICATION = "communication"
    """Between devices, while nothing else ran (what is hidden behind other work is told apart)."""

    OTHER = "other"
    """Kernels that no rule knows."""

    HOST = "idle: host"
    """The device waits for the host to launch; on the CPU, what ran outside of operators."""

    DATA = "idle: data"
    RANKS = "idle: ranks"


IDLE = (Work.HOST, Work.DATA, Work.RANKS)


class Trait(StrEnum):
    """What a name alone says."""

    GEMM = "gemm"
    ATTENTION = "attention"
    SOFTMAX = "softmax"
    """Attention written out, or the head's."""

    LOSS = "loss"
    ELEMENTWISE = "elementwise"
    OPTIMIZER = "optimizer"
    COPY = "copy"
    COMMUNICATION = "communication"
    BOOKKEEPING = "bookkeeping"
    """Views and allocations: operators of the host that move no data."""

    UNKNOWN = "unknown"


KERNELS: Sequence[tuple[str, Trait]] = (
    # NCCL names every kernel by what it does (ncclDevKernel_AllReduce_Sum_bf16_RING_LL). RCCL likewise.
    (r"^(nccl|rccl)|ncclDevKernel|_nccl_", Trait.COMMUNICATION),
    (r"all_?reduce|all_?gather|reduce_?scatter|one_shot_|two_shot_|multimem_", Trait.COMMUNICATION),
    # Attention before products: CUTLASS runs both.
    (r"flash_(fwd|bwd)|FlashAttn|FlashAttention|flash::|flashattn|flash_attncute", Trait.ATTENTION),
    (r"cudnn\w*sdpa|cudnn::fusion::", Trait.ATTENTION),
    (r"fmha_|AttentionKernel|AttentionBackwardKernel|aotriton|attn_(fwd|bwd)|_attention_", Trait.ATTENTION),
    (r"flex_attention", Trait.ATTENTION),
    (r"varlen_num_blocks|bwd_(pre|post)process", Trait.ATTENTION),
    # The optimizer's: multi-tensor kernels stand in clipping too, which belongs to the update.
    (r"multi_tensor_apply|FusedAdam|FusedOptimizer|LPNormFunctor|lpnorm_cleanup", Trait.OPTIMIZER),
    (r"kOptimizer|kPreconditionOptimizer", Trait.OPTIMIZER),  # bitsandbytes
    # The loss.
    (r"dynotune_head_rows|liger_cross_entropy|cross_entropy|nll_loss|_cce_|linear_cross_entropy", Trait.LOSS),
    (r"log_?softmax|LogSoftMax", Trait.LOSS),
    (r"[sS]oft[mM]ax", Trait.SOFTMAX),
    # Matrix products: cuBLAS, cuBLASLt, CUTLASS, Triton's templates, grouped ones, vectors.
    (r"nvjet|gemm|GEMM|Gemm|xmma|cublas|triton_tem_|triton_mm|splitKreduce|splitK_?[rR]educe|gemv|dot_kernel", Trait.GEMM),
    (r"cutlass.*device_kernel|cutlass::Kernel|s16816|s1688|sm\d+_xmma|grouped_mm|matmul|Cijk_", Trait.GEMM),
    # Copies: those of the driver, of tensors of other types or strides, concatenations.
    (r"^Mem(cpy|set) ", Trait.COPY),
    (r"copy_kernel|CatArrayBatchedCopy|copy_device_to_device|FillFunctor|fill_|_to_copy_\d+$", Trait.COPY),
    (r"kDequantizeBlockwise|kQuantizeBlockwise", Trait.ELEMENTWISE),
    (r"elementwise|dynotune_(rms_norm|gated|rotary)|_rms_norm|layer_?norm|RMSNorm|_swiglu|_geglu|rope", Trait.ELEMENTWISE),
    (r"^triton_(poi|red|per|for|unk)_|element_mul|vectorized|reduce_kernel|index\w*[kK]ernel|embedding", Trait.ELEMENTWISE),
    (r"scatter|gather|sort|[sS]can|radix|[dD]ropout|distribution|cunn_|arange|tril|triu|topk", Trait.ELEMENTWISE),
    (r"at::native::|at_cuda_detail|cub::|thrust::|at::cuda", Trait.ELEMENTWISE),
)  # fmt: skip
"""Kernels of a device, by what their names contain."""

_ANY_COPY = (
    "copy_|_to_copy|clone|contiguous|cat|to|fill_|zero_|zeros|zeros_like|ones|ones_like|full|full_like|_local_scalar_dense"
    "|item|pin_memory|_pin_memory"
)
_ANY_VIEW = (
    "empty|empty_like|empty_strided|new_empty|view|_unsafe_view|reshape|_reshape_alias|transpose|t|permute|slice|select|narrow"
    "|expand|expand_as|as_strided|unsqueeze|squeeze|detach|detach_|alias|unbind|split|chunk|resize_|result_type|set_|view_as"
    "|lift_fresh|is_nonzero|broadcast_tensors|flatten|unflatten|movedim|unfold|diagonal|resolve_conj|resolve_neg"
)

OPERATORS: Sequence[tuple[str, Trait]] = (
    (r"^(c10d|nccl|gloo|mpi|ucc|_c10d_functional)(::|:)", Trait.COMMUNICATION),
    (r"scaled_dot_product|(flash|efficient|reference|flex)_attention|varlen_attn|dynotune::(fa\d|cudnn)_", Trait.ATTENTION),
    (r"cross_entropy|nll_loss|log_softmax|logsumexp", Trait.LOSS),
    (r"^aten::_?(safe_)?softmax", Trait.SOFTMAX),
    (r"^aten::_(fused_|foreach_)(adam|adamw|sgd|adagrad)", Trait.OPTIMIZER),
    (r"^aten::(mm|addmm|addmm_|bmm|baddbmm|baddbmm_|linear|matmul|_grouped_mm|_scaled_mm|mv|addmv|einsum|dot)$", Trait.GEMM),
    (r"^(mkldnn|mkl|onednn)::.*(linear|matmul)|^aten::mkldnn_linear", Trait.GEMM),
    (rf"^aten::({_ANY_COPY})$", Trait.COPY),
    (rf"^aten::({_ANY_VIEW})$|^detach$", Trait.BOOKKEEPING),
    (r"^aten::", Trait.ELEMENTWISE),
)  # fmt: skip
"""Operators on the host, by name. An autograd function or node has no trait: what runs inside of it has."""

NAMES = 1 << 14
"""Of kernels and of operators that are kept with their trait: a step has some hundreds, each of them thousands of times."""

_KERNELS = [(re.compile(pattern), trait) for pattern, trait in KERNELS]
_OPERATORS = [(re.compile(pattern), trait) for pattern, trait in OPERATORS]
_ATTENTION_PLACE = re.compile(r"(^|\.)(self_attn|self_attention|attn|attention|SelfAttention)$")
_LORA_PLACE = re.compile(r"\.lora_")
_HEAD_PLACE = re.compile(r"(^|\.)(lm_head|embed_out|output_layer)($|\.)")
_LORA_NODE = re.compile(r"LoraLinears|LoRA_|lora")
_ATTENTION_NODE = re.compile(r"ScaledDotProduct|scaled_dot_product|attention|varlen_attn|FlashAttn")
# Heads that tile the vocabulary are known by name alone: TRL's has no more than 32,768 of it among its shapes.
_HEAD_NODE = re.compile(
    r"FormedBySequence|RecomputedBySequence|^Formed|LigerFusedLinear|CrossEntropy|Chunked(LogProb|Divergence)|LogProbEntropy"
)
_LAYER_PLACE = re.compile(r"(^|\.)(h|[A-Za-z_]*([lL]ayer|[bB]lock)s?)\.\d+(?P<inside>\.|$)")
"""In a decoder's layer: `model.layers.3.mlp`, `transformer.h.3`. Not every numbered module is one: a head may be the last of
an `nn.Sequential`, or one of several."""


@lru_cache(maxsize=NAMES)
def trait_of_kernel(name: str) -> Trait:
    return next((trait for pattern, trait in _KERNELS if pattern.search(name)), Trait.UNKNOWN)


@lru_cache(maxsize=NAMES)
def trait_of_operator(name: str) -> Trait:
    return next((trait for pattern, trait in _OPERATORS if pattern.search(name)), Trait.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of a model tells its classes of work apart."""

    head_places: tuple[str, ...] = ()
    vocabulary: int | None = None
    adapter_ranks: tuple[int, ...] = ()
    hidden: int | None = None
    tokens: frozenset[int] = frozenset()
    """Of the model's calls, as far as they are known: what tells a vocabulary from as many tokens."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One kernel, copy or operator, and where it ran."""

    name: str
    source: Source
    operator: str = ""
    """The innermost operator around its launch; of an operator itself its own name."""

    place: str = ""
    phase: Phase = Phase.OTHER
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of that operator's arguments."""

    updating: bool = False
    """In the optimizer's step or in clipping."""

    inside: tuple[str, ...] = ()
    """Names of autograd functions, and of operators of attention, around it."""


def work_of(ran: Ran, around: Surroundings) -> Work:
    """The class of one event. Raises nothing: what nothing is known of is `OTHER`."""
    by_kernel = ran.source in (Source.KERNEL, Source.COPY)
    trait = trait_of_kernel(ran.name) if by_kernel else trait_of_operator(ran.name)
    if by_kernel and trait is Trait.UNKNOWN and ran.operator:
        trait = trait_of_operator(ran.operator)
        trait = Trait.ELEMENTWISE if trait is Trait.BOOKKEEPING else trait
    if trait is Trait.COMMUNICATION:
        return Work.COMMUNICATION
    if trait is Trait.BOOKKEEPING and not by_kernel:
        return Work.HOST
    if ran.updating or ran.phase is Phase.UPDATE or trait is Trait.OPTIMIZER:
        return Work.OPTIMIZER
    if trait is Trait.ATTENTION or any(_ATTENTION_NODE.search(one) for one in ran.inside):
        return Work.ATTENTION
    if ran.source is Source.COPY:
        return Work.COPIES
    if trait is Trait.LOSS or _at_head(ran, trait, around):
        return Work.HEAD
    if trait in (Trait.SOFTMAX, Trait.GEMM) and _in_attention(ran, trait):
        return Work.ATTENTION
    if trait is Trait.GEMM:
        return Work.LORA if _of_adapter(ran, around) else Work.GEMM
    if _LORA_PLACE.search(ran.place) or any(_LORA_NODE.search(one) for one in ran.inside):
        return Work.LORA
    if trait is Trait.COPY:
        return Work.COPIES
    return Work.OTHER if trait is Trait.UNKNOWN else Work.ELEMENTWISE


def _at_head(ran: Ran, trait: Trait, around: Surroundings) -> bool:
    if any(f"{ran.place}.".startswith(f"{head}.") for head in around.head_places) or _HEAD_PLACE.search(ran.place):
        return True
    if any(_HEAD_NODE.search(one) for one in (ran.operator, *ran.inside)):
        return True
    # An embedding is a look-up with the vocabulary among its shapes, and no part of the head.
    if around.vocabulary is None or "embedding" in ran.operator or "embedding" in ran.name:
        return False
    return not _in_layer(ran.place, around) and _over_vocabulary(ran.shapes, trait, around)


def _in_layer(place: str, around: Surroundings) -> bool:
    """What is `layers.4` itself may be a head where none is known; what lies inside of it is none."""
    found = _LAYER_PLACE.search(place)
    return found is not None and (bool(found["inside"]) or bool(around.head_places))


def _over_vocabulary(shapes: Sequence[tuple[int, ...]], trait: Trait, around: Surroundings) -> bool:
    """Whether shapes have the vocabulary where logits and the head's weight have it: what is (..., V), or a side of a
    product. Rows of what is no product are tokens, or those of an embedding's gradient."""
    vocabulary = around.vocabulary
    if trait is Trait.GEMM and vocabulary in around.tokens and (sides := _sides(shapes)):
        return sides.count(vocabulary) > 1  # one is the tokens
    if trait is Trait.GEMM:
        return any(vocabulary in shape for shape in shapes if len(shape) == 2) or _last(shapes, vocabulary, 3)
    return _last(shapes, vocabulary, 2, 3)


def _last(shapes: Sequence[tuple[int, ...]], size: int | None, *dimensions: int) -> bool:
    return any(shape[-1] == size for shape in shapes if len(shape) in dimensions)


def _sides(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Of a product of two matrices, as it was or with the second one turned: rows, what is summed over, columns."""
    for left, right in pairwise([shape for shape in shapes if len(shape) == 2]):
        if left[1] == right[0]:
            return left[0], left[1], right[1]
        if left[1] == right[1]:
            return left[0], left[1], right[0]
    return ()


def _in_attention(ran: Ran, trait: Trait) -> bool:
    """Attention written out: a batched product, or a softmax, in a module of attention and outside of its projections."""
    if trait is Trait.SOFTMAX:
        return True  # the head's is known by the vocabulary, and was asked for before
    batched = "bmm" in ran.operator
    return batched and _ATTENTION_PLACE.search(ran.place) is not None


def _of_adapter(ran: Ran, around: Surroundings) -> bool:
    if _LORA_PLACE.search(ran.place):
        return True
    if not around.adapter_ranks or not ran.shapes:
        return False
    sides = [side for shape in ran.shapes if len(shape) == 2 for side in shape]
    if not sides:
        return False
    least = min(sides)
    # Several adapters of one input are computed in one product: two or three times the rank.
    ranks = {rank * times for rank in around.adapter_ranks for times in (1, 2, 3)}
    return least in ranks and (around.hidden is None or least < around.hidden)
