"""The process before anything is built: device, seeds, determinism, one rank."""

import os
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from dynotune.config.checking.problems import shown
from dynotune.config.keys.run import RunConfig
from dynotune.config.reading.files import MAX_DIGITS
from dynotune.errors import ConfigError
from dynotune.model.load import choose_device
from dynotune.model.precision import Precision


def set_up_process(config: RunConfig) -> torch.device:
    """Seed everything, set determinism and TF32, and choose the device."""
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal():
        raise ConfigError(f"WORLD_SIZE is {shown(given)}, not a number of processes. Unset it, or set it to 1.")
    world = int(given[:MAX_DIGITS])
    if world > 1:
        raise ConfigError(
            f"WORLD_SIZE is {world}: this version trains on one GPU. Start one process; training on several comes with the"
            " work on reliability and ranks."
        )
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


def autocast_of(precision: Precision, device: torch.device) -> Callable[[], Any]:
    """Makes the context in which forward passes run."""
    if not precision.compute_bf16:
        return nullcontext
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
