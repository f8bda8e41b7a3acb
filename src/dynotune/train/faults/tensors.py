"""Which tensor an allocation was for: the sizes of what a run allocates, by formula, and those that fit what was asked for.

Legend of shapes: T tokens of the micro-batch, N its label tokens, C rows of logits at once, D hidden, I intermediate,
H heads, K key/value heads, h head dimension, R rank, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dynotune.model.head.chunks import chunks
from dynotune.train.faults.shortage import Size, gib

_WIDTHS = {4: "float32", 2: "bfloat16"}
_SMALL, _MIDDLE, _LARGE = 2 << 20, 20 << 20, 10 << 20
"""PyTorch's CUDA allocator takes 2 MiB of the device for a tensor of up to 1 MiB, 20 MiB for one of up to 10 MiB, and whole
multiples of 2 MiB for a larger one; its message gives what it takes."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that may have been asked for."""

    what: str
    formula: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.what}: {self.formula} = {gib(self.bytes)}"


@dataclass(frozen=True, slots=True)
class MicroBatchSize:
    """What the sizes of a micro-batch's tensors follow from."""

    tokens: int
    labels: int
    packed: bool


def segment(exact: int) -> int:
    """What the CUDA allocator takes of the device for a tensor of so many bytes."""
    exact = -(-max(exact, 1) // 512) * 512
    if exact <= 1 << 20:
        return _SMALL
    return _MIDDLE if exact < _LARGE else -(-exact // _SMALL) * _SMALL


def fitting(asked: Size, tensors: Iterator[Tensor], on_gpu: bool) -> list[Tensor]:
    """Those that an allocation of this size may have been for, each size once."""
    found: dict[tuple[str, str], Tensor] = {}
    for one in tensors:
        if asked.shows(one.bytes) or (on_gpu and asked.shows(segment(one.bytes))):
            found.setdefault((one.what, one.formula), one)
    return list(found.values())


def is_ambiguous(asked: Size, on_gpu: bool) -> bool:
    """Whether the size says next to nothing: the allocator takes it for any small tensor."""
    return on_gpu and asked.bytes in (_SMALL, _MIDDLE)


def of_micro_batch(model: Any, batch: MicroBatchSize) -> Iterator[Tensor]:
    """What the forward and backward pass of a micro-batch allocates for each of its tokens."""
    config = model.config.get_text_config()
    hidden = int(config.hidden_size)
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    keys = int(getattr(config, "num_key_value_heads", 0) or heads)
    size = int(getattr(config, "head_dim", 0) or (hidden // heads if heads else 0))
    widths = {"hidden states (T x D": hidden}
    if middle := getattr(config, "intermediate_size", None):
        middle = int(middle)
        widths |= {"MLP activations (T x I": middle, "MLP activations, gate and up together (T x 2I": 2 * middle}
    if heads:
        widths |= {
            "queries or attention output (T x H h": heads * size,
            "keys or values (T x K h": keys * size,
            "queries, keys and values together (T x (H + 2K) h": (heads + 2 * keys) * size,
        }
    for name, width in widths.items():
        for itemsize in _WIDTHS:
            yield _shaped(f"{name} x {itemsize} bytes)", (batch.tokens, width), itemsize)
    if heads:
        for itemsize in _WIDTHS:
            name = f"attention scores of all pairs of tokens (H x T x T x {itemsize} bytes)"
            yield _shaped(name, (heads, batch.tokens, batch.tokens), itemsize)
    yield from _of_head(model, batch, hidden)
    longs = 2 * batch.tokens + 2 * batch.labels
    yield Tensor("the micro-batch itself (2T + 2N int64)", f"{longs:,} x 8", 8 * longs)
    for rank in sorted({m.shape[0] for name, m in model.named_parameters() if "lora_A" in name and m.dim() == 2}):
        for itemsize in _WIDTHS:
            yield _shaped(f"low-rank activations (T x R x {itemsize} bytes)", (batch.tokens, rank), itemsize)


def of_weights(model: Any) -> Iterator[Tensor]:
    """What is allocated once for each weight: itself, its copy in lower precision, its gradient, optimizer states."""
    for name, p in model.named_parameters():
        shape = tuple(p.shape)
        kinds = ["the weight"]
        if p.requires_grad:
            kinds = ["the gradient or an optimizer state", "the weight"]
        for itemsize in dict.fromkeys((p.itemsize, 2, 4)):
            copy = "" if itemsize == p.itemsize else f", in {_WIDTHS.get(itemsize, f'{itemsize} bytes')}"
            yield _shaped(f"{' or '.join(kinds)} {name}{copy}", shape, itemsize)


def _of_head(model: Any, batch: MicroBatchSize, hidden: int) -> Iterator[Tensor]:
    head = model.get_output_embeddings()
    vocabulary = (
        int(head.weight.shape[0]) if hasattr(head, "weight") else int(model.config.get_text_config().vocab_size)
    )
    for itemsize in _WIDTHS:
        if batch.packed:
            rows = max((end - first for first, end in chunks(batch.labels, vocabulary, itemsize)), default=0)
            for wide in dict.fromkeys((-(-vocabulary // 64) * 64, vocabulary)):
                yield _shaped(f"logits of a chunk of label tokens (C x V x {itemsize} bytes)", (rows, wide), itemsize)
            yield _shaped(f"hidden states of label tokens (N x D x {itemsize} bytes)", (batch.labels, hidden), itemsize)
        else:
            yield _shaped(
                f"logits of the whole document (T x V x {itemsize} bytes)", (batch.tokens, vocabulary), itemsize
            )


def _shaped(what: str, shape: tuple[int, ...], itemsize: int) -> Tensor:
    n = itemsize
    for width in shape:
        n *= width
    return Tensor(what, " x ".join(f"{width:,}" for width in (*shape, itemsize)), n)
