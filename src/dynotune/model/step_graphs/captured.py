"""Both passes as CUDA graphs, in a pool of memory that graphs share.

Sums of gradients are added up inside of the backward graph, at addresses that stay: handed to autograd, a gradient would be
taken for the sum, and the next replay would write over it (seen on an H200: sums off by all of their size).

Graphs are replayed one after another, each backward behind its forward, so that what one leaves for its backward may lie
where the next one's does.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynotune.model.step_graphs.passes import Inputs, Run

WARM_UP = 2
"""Passes launched before: kernels that are compiled, tuned or loaded at their first call cannot be captured."""


class Captured:
    """As `Passes`. Raises whatever an operation raises that cannot be captured."""

    def __init__(
        self, run: Run, inputs: Inputs, parameters: Sequence[Tensor], sums: Sequence[Tensor], pool: Any
    ) -> None:
        self.inputs = inputs
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        # Casts of weights that autocast keeps would be made in one graph and read in others.
        cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    hidden_TD = run(inputs)
                    torch.autograd.grad(hidden_TD, parameters, torch.zeros_like(hidden_TD))
                    del hidden_TD
            torch.cuda.current_stream().wait_stream(side)
            # The thread that sends the next micro-batch goes on meanwhile; by default its calls would end the capture.
            with torch.cuda.graph(self._forward, pool=pool, capture_error_mode="thread_local"):
                hidden_TD = run(inputs)
            self.hidden_TD = hidden_TD.detach()
            self.gradient_TD = torch.zeros_like(self.hidden_TD)
            with torch.cuda.graph(self._backward, pool=pool, capture_error_mode="thread_local"):
                found = torch.autograd.grad(hidden_TD, parameters, self.gradient_TD)
                torch._foreach_add_(list(sums), list(found))
        finally:
            torch.set_autocast_cache_enabled(cached)

    def forward(self) -> None:
        self._forward.replay()

    def backward(self) -> None:
        self._backward.replay()
