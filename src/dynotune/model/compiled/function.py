"""The function that is compiled: a layer's call, with what changes between micro-batches in a form that does not recompile.

Three things change besides the numbers in tensors. The token count takes the few values of the ladder, and each has a
function, and so a graph, of its own. The count of boundaries and the longest length are sizes of tensors whose size is
marked as one that changes: the graph takes them as they come. So are the rows of gathered keys and their boundaries, where
documents share a beginning. The lengths as a tuple stay outside: compiled code gets boundaries on the device only.

Legend of shapes: T tokens of the micro-batch, D hidden, S segments, L at least the tokens of the longest segment, R rows of
gathered keys.
"""

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Shape(NamedTuple):
    """What there is one graph for, if all layers are alike."""

    tokens: int

    with_gradient: bool
    """Whether the layer's input needs a gradient. The first layer's does not where the embeddings are frozen: its backward
    pass computes less, which is another graph."""

    gathered: bool = False
    """Whether keys are gathered, since documents share a beginning."""

    def __str__(self) -> str:
        more = ["shared beginnings"] * self.gathered + ["no gradient of the input"] * (not self.with_gradient)
        return f"{self.tokens:,} tokens" + (f" ({', '.join(more)})" if more else "")


class Gathered(NamedTuple):
    """What a layer is told of gathered keys, sizes as tensors."""

    rows_R: Tensor
    boundaries_S1: Tensor
    ruler_L: Tensor
    """Longer than the longest segment of keys by `LONGER`."""


LONGER = 2
"""Sizes that are equal when a graph is made, the compiler takes for one, and makes another graph when they part. Lengths of
queries are powers of two, counts of boundaries one more: lengths of keys stand beside both."""


def function_of(shape: Shape, compiler: str, mode: str | None) -> Callable[..., Any]:
    """A compiled function for calls of one shape.

    Its code object is a copy: the compiler keeps graphs by code object, so that guards of other token counts are never
    tried, its limit of graphs counts each shape by itself, and it is named in the compiler's own log.
    """
    code = _call_layer.__code__.replace(co_name=f"layer_of_{shape.tokens}_tokens")
    copy = FunctionType(code, _call_layer.__globals__, code.co_name)
    compiled: Callable[..., Any] = torch.compile(copy, fullgraph=True, dynamic=False, backend=compiler, mode=mode)
    return compiled


def _call_layer(
    layer: nn.Module,
    hidden_1TD: Tensor,
    boundaries_S1: Tensor,
    ruler_L: Tensor,
    gathered: Gathered | None,
    others: Mapping[str, Any],
) -> Any:
    longest = ruler_L.shape[0]
    return layer._call_impl(
        hidden_1TD,
        cu_seq_lens_q=boundaries_S1,
        cu_seq_lens_k=boundaries_S1 if gathered is None else gathered.boundaries_S1,
        max_length_q=longest,
        max_length_k=longest if gathered is None else gathered.ruler_L.shape[0] - LONGER,
        key_rows=None if gathered is None else gathered.rows_R,
        **others,
    )


class Rulers:
    """Tensors that have nothing but a size, one for each longest length (powers of two, so few)."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def __getitem__(self, longest: int) -> Tensor:
        """A tensor [longest] of one element in memory."""
        ruler_L = self._kept.get(longest)
        if ruler_L is None:
            with torch.inference_mode(False):
                ruler_L = self._kept[longest] = of_any_size(torch.zeros(1).expand(longest))
        return ruler_L


def of_any_size(x: Tensor) -> Tensor:
    """`x`, marked: its first dimension changes, and the graph is not to be made for its present size.

    The mark asks and does not insist, so that an attention function that looks at the size costs a graph, which is seen and
    reported, not the run.
    """
    if not hasattr(x, "_dynamo_weak_dynamic_indices"):
        torch._dynamo.maybe_mark_dynamic(x, 0)
    return x
