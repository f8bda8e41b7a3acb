"""How far attention reaches in each layer, and what that costs: per document, causal, by heads and head sizes.

The convention is the strict one: n^2 / 2 pairs of a query and a key for a document of n tokens (the half of the square; a
kernel computes n (n + 1) / 2, the diagonal whole, which is n / 2 more and below 1 % from 100 tokens on). Windows and chunks
take away what lies outside of them by the same convention. Grouped key/value heads change the projections, not this: every
query head still meets every key.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dynotune.measure.products import CannotCountError


@dataclass(frozen=True, slots=True)
class Reach:
    """Which keys a token meets: all before it in its document, the last `window`, or those of its chunk."""

    window: int | None = None
    chunk: int | None = None

    def twice_pairs(self, lengths: NDArray[np.integer]) -> int:
        """Twice the pairs of all documents of these `lengths`: a whole number, n^2 each without window or chunk."""
        n = lengths.astype(np.int64, copy=False)
        if self.window is not None:
            beyond = np.maximum(n - self.window, 0)
            return int(n.dot(n) - beyond.dot(beyond))
        if self.chunk is not None:
            whole, rest = np.divmod(n, self.chunk)
            return int(whole.sum() * self.chunk**2 + rest.dot(rest))
        return int(n.dot(n))


def reaches_of(config: Any) -> list[Reach]:
    """The reach of every layer. `config` is the text model's.

    Raises:
        CannotCountError: a layer mixes tokens by something else than attention.
    """
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return [Reach(window=window)] * int(config.num_hidden_layers)
    found = []
    for kind in kinds:
        if kind == "full_attention":
            found.append(Reach())
        elif kind == "sliding_attention" and window:
            found.append(Reach(window=int(window)))
        elif kind == "chunked_attention" and config.attention_chunk_size:
            found.append(Reach(chunk=int(config.attention_chunk_size)))
        else:
            counted = ", ".join(f"{n} of {k}" for k, n in Counter(kinds).items())
            raise CannotCountError(f"layers of type `{kind}` are not counted (this model has {counted})")
    return found


def head_sizes(config: Any, layer: nn.Module) -> tuple[int, int]:
    """Features of all query heads and of all value heads that attention works with, from the configuration.

    `head_dim` where the configuration has it: hidden / heads is another number in many models (Qwen3-4B: 80 for 128).

    Raises:
        CannotCountError: the layer's own query projection says something else.
    """
    heads = config.num_attention_heads
    if not isinstance(heads, int):
        raise CannotCountError("the number of heads differs by layer")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    queries = heads * int(getattr(config, "qk_head_dim", None) or head_dim)
    values = heads * int(getattr(config, "v_head_dim", None) or head_dim)
    for name, module in layer.named_modules():
        made = getattr(module, "out_features", None)
        if name.endswith("q_proj") and made is not None and made != queries:
            raise CannotCountError(f"{name} makes {made} features, the configuration says {queries}")
    return queries, values
