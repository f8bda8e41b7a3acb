"""What of this process decides how a matrix product is computed: TF32, and the threads of a CPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def tf32_of(device: "torch.device") -> bool | None:
    """Whether float32 products may be TF32 in this process, as far as PyTorch was asked. None on the CPU."""
    import torch

    if device.type != "cuda":
        return None
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # somebody set it by the newer name, which the older one refuses to read
        return str(getattr(torch.backends.cuda.matmul, "fp32_precision", "")) == "tf32"


@contextmanager
def under(device: "torch.device", threads: int | None, tf32: bool | None) -> Iterator[None]:
    """As another process had it set: a floor by settings under which nothing ran is none. None: as it is here.

    threads: of the CPU; more than this machine has are left aside.
    """
    import torch

    before, tf32_before = torch.get_num_threads(), tf32_of(device)
    if device.type != "cuda" and threads is not None and 0 < threads <= (os.cpu_count() or 1):
        torch.set_num_threads(threads)
    if tf32_before is not None and tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if tf32_before is not None and tf32 is not None:
            torch.backends.cuda.matmul.allow_tf32 = tf32_before
