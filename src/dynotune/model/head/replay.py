"""Running a head a second time under the circumstances of the first: autocast, and the random numbers of its dropout."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn


class Replay:
    """What holds now, to be had again in the backward pass, which runs in a thread that knows none of it."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.device = device
        self.autocast = torch.is_autocast_enabled(device.type)
        self.precision = torch.get_autocast_dtype(device.type)
        self.host_state = self.device_state = None
        if _draws(module):
            self.host_state = torch.get_rng_state()
            if device.type == "cuda":
                self.device_state = torch.cuda.get_rng_state(device)  # the generator lies on the host: no waiting

    @contextmanager
    def same(self) -> Iterator[None]:
        """As it was. What comes after draws on as if nothing had been drawn in here."""
        with ExitStack() as stack:
            stack.enter_context(torch.autocast(self.device.type, self.precision, enabled=self.autocast))
            if self.host_state is not None:
                devices = [self.device] if self.device_state is not None else []
                stack.enter_context(torch.random.fork_rng(devices=devices))
                torch.set_rng_state(self.host_state)
                if self.device_state is not None:
                    torch.cuda.set_rng_state(self.device_state, self.device)
            yield


def _draws(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Dropout) and part.training and part.p > 0 for part in module.modules())
