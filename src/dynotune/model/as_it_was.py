"""Runs of a model that leave nothing behind."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def as_it_was(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Behind it the mode of every module, the buffers and the random states of the CPU and of `device` are as before."""
    modes = [(m, m.training) for m in model.modules()]
    buffers = [(m, name, b, b.clone()) for m in model.modules() for name, b in m.named_buffers(recurse=False)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    buffer.copy_(value)
                    module._buffers[name] = buffer  # rotary embeddings put a new tensor here
