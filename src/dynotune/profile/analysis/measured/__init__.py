"""What was measured elsewhere and ships with the package: speeds of whole runs, rates of attention kernels.

`benchmarks/profile_tables.py` makes both files from the results that the repository keeps; each row says which.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Speed:
    """One run of ours."""

    gpu: str
    method: str
    adapter: bool
    model: str
    work: str
    tokens_a_step: int
    tokens_per_second: int
    mfu: float
    """Strict."""

    peak_tflops: float
    versions: dict[str, str]
    commit: str
    source: str


@dataclass(frozen=True, slots=True)
class AttentionRate:
    """One kernel on documents of one mixture of lengths, forward and backward."""

    gpu: str
    kernel: str
    head_dim: int
    length: int
    """Of the document of a token, on average over tokens: sum n^2 / sum n."""

    tflops: float
    """Of n^2 / 2 pairs: two products forward, and five backward, as flash kernels compute the scores again."""

    source: str


@cache
def speeds() -> tuple[Speed, ...]:
    return tuple(Speed(**one) for one in _rows("speeds.json"))


@cache
def attention_rates() -> tuple[AttentionRate, ...]:
    return tuple(AttentionRate(**one) for one in _rows("attention.json"))


def attention_rate(gpu: str, kernels: Sequence[str], lengths: Sequence[int], head_dim: int) -> AttentionRate | None:
    """The first of `kernels` that was measured there, on the lengths that are nearest; None where nothing was, or what was
    is more than twice as far away."""
    total = sum(lengths)
    if not total:
        return None
    length = sum(n * n for n in lengths) / total

    def far(one: AttentionRate) -> float:
        return abs(math.log(one.length / length)) + abs(math.log(one.head_dim / head_dim))

    for kernel in kernels:
        there = [one for one in attention_rates() if one.gpu == gpu and one.kernel == kernel]
        nearest = min(there, key=far, default=None)
        if nearest is not None and far(nearest) <= math.log(4):
            return nearest
    return None


def nearest_speed(gpu: str, method: str, adapter: bool, tokens_a_step: float) -> Speed | None:
    """The run of such work whose steps held most nearly as many tokens, within a factor of four."""

    def far(one: Speed) -> float:
        return abs(math.log(one.tokens_a_step / tokens_a_step))

    there = [one for one in speeds() if (one.gpu, one.method, one.adapter) == (gpu, method, adapter)]
    found = min(there, key=far, default=None) if tokens_a_step > 0 else None
    return found if found is not None and far(found) <= math.log(4) else None


def _rows(name: str) -> list[dict[str, Any]]:
    body = json.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    if body["format"] != FORMAT:
        raise ValueError(f"{name} has format {body['format']}, not {FORMAT}")
    rows: list[dict[str, Any]] = body["rows"]
    return rows
