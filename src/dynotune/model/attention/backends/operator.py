"""Operators of PyTorch around kernels of other packages: opaque to the compiler, with shapes that it knows and a gradient.

Legend of shapes: T tokens of the row, S segments, H heads, K key and value heads, D head dimension.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Forward = Callable[[Tensor, Tensor, Tensor, Tensor, int, Tensor, int, float, int, float], tuple[Tensor, Tensor]]
"""Of query, key, value, boundaries and longest of queries and of keys, scaling, window (-1: none) and soft-cap (0: none):
the output [T, H, D] and the logarithm of each row's sum of exponentials, float32 [H, T]."""

Backward = Callable[
    [Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, Tensor, int, float, int, float],
    tuple[Tensor, Tensor, Tensor],
]
"""Of the output's gradient, query, key, value, output, logarithms, the rest as above: three gradients."""

_LIBRARY = torch.library.Library("dynotune", "FRAGMENT")
_SEGMENTS = "Tensor boundaries, SymInt longest, Tensor key_boundaries, SymInt longest_key"
_REST = f"{_SEGMENTS}, float scaling, int window, float softcap"


def define(name: str, forward: Forward, backward: Backward) -> Callable[..., tuple[Tensor, Tensor]]:
    """The operator `dynotune::NAME_forward`, differentiable by its first three arguments, with `dynotune::NAME_backward`.

    What `forward` and `backward` return is fresh and contiguous.
    """
    _LIBRARY.define(f"{name}_forward(Tensor query, Tensor key, Tensor value, {_REST}) -> (Tensor, Tensor)")
    _LIBRARY.define(
        f"{name}_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, {_REST})"
        " -> (Tensor, Tensor, Tensor)"
    )
    _LIBRARY.impl(f"{name}_forward", forward, "CompositeExplicitAutograd")
    _LIBRARY.impl(f"{name}_backward", backward, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dynotune::{name}_forward", _forward_shapes, lib=_LIBRARY)
    torch.library.register_fake(f"dynotune::{name}_backward", _backward_shapes, lib=_LIBRARY)
    gradient_of = getattr(torch.ops.dynotune, f"{name}_backward").default

    def backpropagate(context: Any, gradient: Tensor, of_logsumexp: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, logsumexp, boundaries, key_boundaries = context.saved_tensors
        longest, longest_key, *rest = context.rest
        segments = boundaries, longest, key_boundaries, longest_key
        gradients = gradient_of(gradient, query, key, value, out, logsumexp, *segments, *rest)
        return *gradients, None, None, None, None, None, None, None

    torch.library.register_autograd(
        f"dynotune::{name}_forward", backpropagate, setup_context=_keep_for_backward, lib=_LIBRARY
    )
    made: Callable[..., tuple[Tensor, Tensor]] = getattr(torch.ops.dynotune, f"{name}_forward").default
    return made


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # torch names these
    query, key, value, boundaries, longest, key_boundaries, longest_key, *rest = inputs
    ctx.save_for_backward(query, key, value, *output, boundaries, key_boundaries)
    ctx.mark_non_differentiable(output[1])
    ctx.rest = longest, longest_key, *rest


def _forward_shapes(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = query.shape
    return query.new_empty(tokens, heads, value.shape[-1]), query.new_empty(heads, tokens, dtype=torch.float32)


def _backward_shapes(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)
