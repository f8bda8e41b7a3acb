"""The process before anything is built: device, seeds, determinism."""

import os
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from dynotune.config.keys.run import RunConfig
from dynotune.model.load import choose_device
from dynotune.model.precision import Precision
from dynotune.parallel.ranks import Ranks

APART = 0x9E3779B1
"""Between the seeds of neighbouring ranks: a prime near 2^32 over the golden ratio, so that no usual seed is another's."""


def set_up_process(config: RunConfig, local_rank: int = 0) -> torch.device:
    """Seed everything, set determinism and TF32, and choose the device: the GPU `local_rank`, where there are some."""
    if torch.cuda.is_available() and not config.use_cpu and local_rank:
        torch.cuda.set_device(local_rank)
    if config.full_determinism:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if config.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        torch.backends.cudnn.allow_tf32 = config.tf32
    if config.disable_tqdm or not sys.stderr.isatty():
        import transformers

        transformers.logging.disable_progress_bar()
    seed_everything(config.seed)
    return choose_device(config.use_cpu)


def seed_everything(seed: int) -> None:
    """Python's, NumPy's and PyTorch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # libraries draw from the global generator
    torch.manual_seed(seed)


def draw_apart(seed: int, ranks: Ranks) -> None:
    """From here on each rank draws its own numbers (dropout, noise): the same masks on all would be fewer of them.

    The first rank's are those that it draws alone.
    """
    if ranks.rank:
        seed_everything((seed + APART * ranks.rank) % 2**32)


def autocast_of(precision: Precision, device: torch.device) -> Callable[[], Any]:
    """Makes the context in which forward passes run."""
    if not precision.compute_bf16:
        return nullcontext
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
