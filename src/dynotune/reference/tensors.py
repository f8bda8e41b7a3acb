"""A digest of tensors, computed where they lie: the 15 GB of a 7B shape took 12 s to travel to an H200's host and be read
there, before each run of DPO and each arm of a bench whose weights are in no file."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

_WORDS = 1 << 14
"""Of 32 bits, that are added up."""

_ROWS = {"cpu": 4}
"""Of so many words, by kind of device, that are added up at once: what a cache holds. A GPU has more in flight."""

_WORD_OF = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element, what holds the same bits."""


def tensors_digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Of named tensors, in any order: of weights that are in memory alone. Waits for the device, once a tensor.

    The same on every device, and another than that of a file of the same weights. By `_WORDS` of 32 bits it is the sum of
    words times random numbers of 64 bits, modulo 2^64: two contents that differ have the same by at most one choice of
    numbers in 2^33. It guards against mistakes and not against somebody who knows the numbers.
    """
    of_device: dict[torch.device, Tensor] = {}
    parts = []
    for name, tensor in tensors:
        numbers = of_device.get(tensor.device)
        if numbers is None:
            numbers = of_device[tensor.device] = _numbers().to(tensor.device)
        sums = blake2b(_sums(tensor, numbers).numpy().tobytes(), digest_size=16).hexdigest()
        parts.append(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0{sums}\0")
    return blake2b("".join(sorted(parts)).encode(), digest_size=16).hexdigest()


def _numbers() -> Tensor:
    """The random numbers, (`_WORDS`,): NumPy promises the bits of this generator for all versions."""
    return torch.from_numpy(np.random.PCG64(20261127).random_raw(_WORDS).view(np.int64))


@torch.no_grad()
def _sums(tensor: Tensor, numbers: Tensor) -> Tensor:
    """Of each `_WORDS` words of its bits, the last ones by themselves; int64, on the host."""
    words = _words(tensor)
    whole = len(words) // len(numbers) * len(numbers)
    rows = words[:whole].view(-1, len(numbers)).split(_ROWS.get(tensor.device.type, 256))
    sums = [(some.to(torch.int64) * numbers).sum(1) for some in rows if len(some)]
    rest = words[whole:]
    return torch.cat([*sums, (rest.to(torch.int64) * numbers[: len(rest)]).sum()[None]]).cpu()


def _words(tensor: Tensor) -> Tensor:
    """Its bits as one row of int32, with zeros behind it up to whole words."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    flat = flat.view(_WORD_OF[flat.element_size()])
    per_word = max(1, 4 // flat.element_size())
    if len(flat) % per_word:
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % per_word))
    elif flat.storage_offset() % per_word:  # it begins within a word of what it is a part of
        flat = flat.clone()
    return flat.view(torch.int32)
