"""What activation checkpointing does a second time."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from dynotune.measure.products import Product

NORM_BEHIND = ("post_feedforward", "post_mlp", "post_ffw")
"""Names of a norm between a layer's last product and its residual sum; it needs the product's result again."""


def recomputed_weights(layer: nn.Module, products: Sequence[Product]) -> int | None:
    """Weights of a decoder layer whose products run again in the backward pass; None where the layer is not checkpointed.

    All of them but the last: PyTorch's recomputation stops as soon as everything that the backward needs is there again, and
    nothing needs the result of a layer's last product where only the residual sum follows. It does run again behind a norm,
    in experts (their results are weighed), under an adapter, and with `use_reentrant: true`, which does not stop early.
    """
    if not getattr(layer, "gradient_checkpointing", False) or not products:
        return None
    every = sum(product.weights for product in products)
    last = products[-1]
    function: Any = getattr(layer, "_gradient_checkpointing_func", None)
    stops_early = not getattr(function, "keywords", {}).get("use_reentrant", True)
    norm_behind = any(name.startswith(NORM_BEHIND) for name, _ in layer.named_children())
    if not stops_early or norm_behind or last.expert or last.adapter:
        return every
    return every - last.weights
