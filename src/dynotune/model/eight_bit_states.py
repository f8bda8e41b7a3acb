"""Which weights have optimizer states of 8 bits under bitsandbytes, and what all states take.

As in transformers' Trainer, embeddings keep float32 states, since 8 bits hurt them; and so does, as bitsandbytes has it,
what has fewer than 4,096 elements. Dettmers et al., arXiv 2110.02861.
"""

import ast
import math
import re
from collections.abc import Iterable

from torch import Tensor, nn

SMALL = 4096
"""bitsandbytes' `min_8bit_size`: elements below which states stay in float32."""

BLOCK = 256
"""Values with one scale."""


def smallest(optim_args: str | None) -> int:
    """`min_8bit_size` of `optim_args`, as the optimizer gets it; what is no number is refused where that is made."""
    found = re.search(r"\bmin_8bit_size=([^,]+)", (optim_args or "").replace(" ", ""))
    try:
        return math.ceil(ast.literal_eval(found[1])) if found else SMALL
    except (ValueError, SyntaxError, TypeError, OverflowError):
        return SMALL


def embeddings_of(model: nn.Module) -> set[int]:
    """The ids of weights that are looked up."""
    return {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}


def has_8_bits(parameter: Tensor, embeddings: set[int], small: int = SMALL) -> bool:
    return parameter.numel() >= small and id(parameter) not in embeddings


def counted(model: nn.Module, small: int = SMALL) -> tuple[int, int]:
    """Of how many trained weights the states have 8 bits, and how many there are."""
    embeddings, trained = embeddings_of(model), [p for p in model.parameters() if p.requires_grad]
    return sum(has_8_bits(p, embeddings, small) for p in trained), len(trained)


def state_bytes(model: nn.Module, trained: Iterable[Tensor], small: int = SMALL) -> int:
    """Of all states: two values each; where they have 8 bits, two scales a block. The maps, 2 kB in all, do not count."""
    embeddings = embeddings_of(model)
    return sum(
        2 * (p.numel() + 4 * -(-p.numel() // BLOCK)) if has_8_bits(p, embeddings, small) else 8 * p.numel()
        for p in trained
    )
