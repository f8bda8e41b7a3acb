"""Both passes as CUDA graphs, in a pool of memory that graphs share.

Sums of gradients are added up inside of the backward graph, at addresses that stay: handed to autograd, a gradient would be
taken for the sum, and the next replay would write over it (seen on an H200: sums off by all of their size).

Graphs are replayed one after another, each backward behind its forward, so that what one leaves for its backward may lie
where the next one's does.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from dynotune.model.branches import Kind, branching, streams_of, uses_each_once
from dynotune.model.step_graphs.passes import Inputs, Run

WARM_UP = 2
"""Passes launched before: kernels that are compiled, tuned or loaded at their first call cannot be captured."""


class Pool:
    """Memory that graphs share.

    PyTorch takes no capture into a pool whose graphs are all gone while something else still lies in it, such as a workspace
    of cuBLAS ("use_count > 0 INTERNAL ASSERT FAILED", https://github.com/vllm-project/vllm/issues/28426). So whenever no
    graph is left, the next one gets another pool.
    """

    def __init__(self) -> None:
        self._alive = WeakSet[Any]()
        self._handle: Any = None

    def handle(self) -> Any:
        """As captures take it."""
        if not self._alive:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def add(self, graphs: "Captured") -> None:
        """They lie in what `handle` gave last."""
        self._alive.add(graphs)


class Captured:
    """As `Passes`. Raises whatever an operation raises that cannot be captured."""

    def __init__(
        self,
        run: Run,
        inputs: Inputs,
        parameters: Sequence[Tensor],
        sums: Sequence[Tensor],
        pool: Pool,
        branches: Kind = "none",
    ) -> None:
        """branches: what of the adapters runs beside other work."""
        self.inputs, handle, stream = inputs, pool.handle(), torch.cuda.current_stream()
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    hidden_TD = run(inputs)
                    found = torch.autograd.grad(hidden_TD, parameters, torch.zeros_like(hidden_TD))
                    torch._foreach_add_([torch.zeros_like(total) for total in sums], list(found))
                    del hidden_TD, found
            torch.cuda.current_stream().wait_stream(side)
            with self._capturing(self._forward, handle), branching(branches):
                hidden_TD = run(inputs)
            self.hidden_TD = hidden_TD.detach()
            self.gradient_TD = torch.zeros_like(self.hidden_TD)
            with self._capturing(self._backward, handle):
                with branching(branches if uses_each_once(hidden_TD) else "none"):
                    found = torch.autograd.grad(hidden_TD, parameters, self.gradient_TD)
                torch._foreach_add_(list(sums), list(found))
        except BaseException:
            _out_of_capture(stream)
            raise
        pool.add(self)

    @staticmethod
    def _capturing(graph: Any, pool: Any) -> Any:
        # The thread that sends the next micro-batch goes on meanwhile; by default its calls would end the capture.
        stream = streams_of(torch.cuda.current_device()).main
        return torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")

    def forward(self) -> None:
        self._forward.replay()

    def backward(self) -> None:
        self._backward.replay()


def _out_of_capture(stream: Any) -> None:
    """A capture that fails to end leaves its stream the current one, and PyTorch's random generator in it: every draw behind
    it would raise."""
    torch.cuda.set_stream(stream)
    generator: Any = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())
