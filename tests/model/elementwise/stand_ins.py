"""Kernels made of torch's operations, so that what is installed where can be tested without Triton and a GPU."""

from typing import Any

import torch
from torch import Tensor

from dynotune.model.elementwise import gate, norm
from dynotune.model.elementwise.usable import Kernels


class Function:
    """In the place of an autograd function: counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def apply(self, *args: Any) -> Any:
        self.calls += 1
        return self.function(*args)


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, low: torch.dtype | None = None) -> tuple[Tensor, ...]:
    cos, sin = cos[:, None], sin[:, None]
    halves = [x.chunk(2, dim=-1) for x in (query, key)]
    found = [x * cos + torch.cat([-b, a], -1) * sin for x, (a, b) in zip((query, key), halves, strict=True)]
    return tuple(x if low is None else x.to(low) for x in found)


def normed(*given: Any) -> Tensor:
    """`norm.reference`, and what it is rounded to."""
    found = norm.reference(*given[:5])
    return found.to(given[5]) if len(given) > 5 else found


def added_and_normed(a: Tensor, b: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    return a + b, normed(a + b, *given[:4], *(one for one in given[4:] if one is not None))


def stand_ins(**other: Any) -> Kernels:
    """`rms_norm`, `gated`, `gated_halves`, `rotary` or `sum_rms_norm` may be given, to be wrong."""
    functions = {
        "rms_norm": normed,
        "gated": lambda gates, ups, tanh: gate.reference(tanh, gates, ups),
        "gated_halves": lambda both, tanh: gate.reference(tanh, both),
        "rotary": rotate,
        "sum_rms_norm": added_and_normed,
        **other,
    }
    return Kernels(
        **{name: Function(function) for name, function in functions.items()},
        failures=(RuntimeError,), on_cpu=True,
    )  # fmt: skip
