"""Both passes as CUDA graphs, in a pool of memory that graphs share.

Sums of gradients are added up inside of the backward graph, at addresses that stay: handed to autograd, a gradient would be
taken for the sum, and the next replay would write over it (seen on an H200: sums off by all of their size).

Graphs are replayed one after another, each backward behind its forward, so that what one leaves for its backward may lie
where the next one's does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from dynotune.model.branches import Kind, branching, streams_of, uses_each_once
from dynotune.model.step_graphs.passes import Inputs, Run

SCARCE = 0.5
"""Of the device's memory. Where less is free, what PyTorch holds and does not use is given back before a capture, which
cannot have it."""


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
        self.inputs, handle = inputs, pool.handle()
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # Launched once before: kernels that are compiled, tuned or loaded at their first call cannot be captured. On the
        # current stream, as training's passes are, so that their memory serves again.
        hidden_TD = run(inputs)
        found = torch.autograd.grad(hidden_TD, parameters, torch.zeros_like(hidden_TD))
        torch._foreach_add_([torch.zeros_like(total) for total in sums], list(found))
        del hidden_TD, found
        try:
            with capturing(self._forward, handle), branching(branches):
                hidden_TD = run(inputs)
            self.hidden_TD = hidden_TD.detach()
            self.gradient_TD = torch.zeros_like(self.hidden_TD)
            with capturing(self._backward, handle):
                with branching(branches if uses_each_once(hidden_TD) else "none"):
                    found = torch.autograd.grad(hidden_TD, parameters, self.gradient_TD)
                torch._foreach_add_(list(sums), list(found))
        except BaseException:
            _out_of_capture()
            raise
        pool.add(self)

    def forward(self) -> None:
        self._forward.replay()

    def backward(self) -> None:
        self._backward.replay()


@contextmanager
def capturing(graph: Any, pool: Any) -> Iterator[None]:
    """What is put on the current stream inside goes into `graph`.

    `torch.cuda.graph` does that as well, gives all memory back that is held and not used before, which took a second a graph
    of a 7B model (700 allocations that had to be made anew, seen on an H200), and leaves its stream the current one where a
    capture fails to end.
    """
    torch.cuda.synchronize()
    free, whole = torch.cuda.mem_get_info()
    if free < SCARCE * whole:
        torch.cuda.empty_cache()
    with torch.cuda.stream(streams_of(torch.cuda.current_device()).main):
        # The thread that sends the next micro-batch goes on meanwhile; by default its calls would end the capture.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()


def _out_of_capture() -> None:
    """A capture that fails to end leaves PyTorch's random generator in it, and every draw behind it would raise."""
    generator: Any = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())
