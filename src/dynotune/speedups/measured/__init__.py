"""What was measured of kernels that can stand in the same place, by GPU and shape: `kernels.json`, and who comes first.

Figures come from `benchmarks/gpu_liger.py` on the GPU that they name, and each says the file that it comes from. Where
nothing was measured on a GPU the order is that of the declarations.
"""

import functools
import json
import math
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.resources import files
from typing import Any

from dynotune.speedups.contract import Context

FORMAT = 1
"""Number of the file's format."""

ALIKE = 0.03
"""Share of the faster one's time within which two are taken for equally fast."""

NEAR = 1.0
"""Powers of two by which a model's hidden size may lie from the one that was measured."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Kernels of one slot on one GPU, forward and backward: what the device takes for them, launches apart."""

    gpu: str
    """Its name as PyTorch gives it; `*` stands for anything."""

    capability: str
    """Such as `9.0`."""

    slot: str
    hidden: int
    """Hidden size of the model whose shapes were measured."""

    tokens: int
    """Of a micro-batch."""

    trained: bool
    """Whether the weights' gradients were formed: full fine-tuning, not an adapter."""

    ms: dict[str, float]
    """By name of the speed-up; the modules' own operations as `plain`."""

    versions: dict[str, str]
    date: str
    source: str
    """The file of all figures, in the repository."""


@functools.cache
def measurements() -> tuple[Measurement, ...]:
    """All that is shipped."""
    return parsed(files(__package__).joinpath("kernels.json").read_text(encoding="utf-8"))


def parsed(text: str) -> tuple[Measurement, ...]:
    """Of a file's text. Raises `ValueError` or `TypeError` where it is none: the file is part of the package."""
    body: dict[str, Any] = json.loads(text)
    if body["format"] != FORMAT:
        raise ValueError(f"kernels.json has format {body['format']}, not {FORMAT}")
    return tuple(Measurement(**one) for one in body["measurements"])


def figures(slot: str, context: Context) -> Measurement | None:
    """What was measured of `slot` on the context's GPU nearest to its model: the largest micro-batch. None: nothing."""
    if not context.on_gpu or not context.live:
        return None
    import torch

    properties = torch.cuda.get_device_properties(context.device)
    hidden = context.model.config.get_text_config().hidden_size
    capability = f"{properties.major}.{properties.minor}"
    return nearest(slot, properties.name, capability, hidden, not context.has_adapter)


def nearest(slot: str, gpu: str, capability: str, hidden: int, trained: bool) -> Measurement | None:
    """As `figures`, of what it reads off the context."""

    def far(one: Measurement) -> float:
        return abs(math.log2(one.hidden / hidden))

    there = [
        one
        for one in measurements()
        if one.slot == slot and one.trained == trained and one.capability == capability and fnmatch(gpu, one.gpu)
        if far(one) <= NEAR
    ]
    return min(there, key=lambda one: (far(one), -one.tokens), default=None)


def faster(one: str, other: str, found: Measurement | None) -> bool:
    """Whether the speed-up `one` was measured to be faster than `other`, by more than nothing."""
    if found is None or one not in found.ms or other not in found.ms:
        return False
    return found.ms[one] * (1 + ALIKE) < found.ms[other]


def in_words(one: str, other: str, found: Measurement | None) -> str:
    """How `one` compares with `other`, for a sentence about `one`."""
    if found is None or one not in found.ms or other not in found.ms:
        return f"not measured beside {other} on this GPU"
    ratio = found.ms[one] / found.ms[other]
    compared = f"{ratio:.2f} times the time of {other}" if abs(ratio - 1) > ALIKE else f"as fast as {other}"
    gpu = found.gpu.replace("*", "").strip()
    return f"{compared} by itself at hidden size {found.hidden} on {gpu} ({found.date})"
