"""The layers of a micro-batch as a function of tensors at fixed addresses, and its two passes.

Legend of shapes: T tokens of the micro-batch, S segments with spare ones, D hidden.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from dynotune.model.attention.segments import Segments


class Shape(NamedTuple):
    """What a graph is made for. Whatever else differs between two micro-batches stands in `Inputs`."""

    tokens: int
    boundaries: int
    """Segments with spare ones, and one."""

    longest: int
    """As `Segments.longest`."""

    backend: str
    """Of attention."""


class Inputs(NamedTuple):
    """Of one micro-batch, as in `PackedBatch`, with the boundaries of `Segments`."""

    ids_T: Tensor
    positions_T: Tensor
    boundaries_S1: Tensor

    def copies(self) -> "Inputs":
        """At addresses of their own."""
        return Inputs(*(x.clone() for x in self))

    def take(self, other: "Inputs") -> None:
        """The values of `other`."""
        for mine, theirs in zip(self, other, strict=True):
            mine.copy_(theirs)


Run = Callable[[Inputs], Tensor]
"""From inputs to the hidden states [T, D]."""


def layers_of(decoder: nn.Module, shape: Shape) -> Run:
    """The decoder at a shape. Lengths of single segments are left out: the next micro-batch has others."""

    def run(inputs: Inputs) -> Tensor:
        segments = Segments(inputs.boundaries_S1, shape.longest, ())
        keywords = {**segments.keywords(), "segment_lengths": None}
        out: Any = decoder(
            input_ids=inputs.ids_T[None], position_ids=inputs.positions_T[None], use_cache=False,
            attention_backend=shape.backend, **keywords,
        )  # fmt: skip
        hidden_1TD: Tensor = out.last_hidden_state
        return hidden_1TD.squeeze(0)

    return run


class Passes(Protocol):
    """Forward and backward of one shape. A backward belongs to the forward before it."""

    inputs: Inputs
    """What `forward` reads."""

    hidden_TD: Tensor
    """What `forward` leaves. The next one writes over it."""

    gradient_TD: Tensor
    """What `backward` reads; it adds to the sums of gradients that it was made with."""

    def forward(self) -> None: ...
    def backward(self) -> None: ...


class Launched:
    """Launched one by one: what graphs are compared with, and what stands in for them on the CPU."""

    def __init__(self, run: Run, inputs: Inputs, parameters: Sequence[Tensor], sums: Sequence[Tensor]) -> None:
        self.run, self.inputs, self.parameters, self.sums = run, inputs, parameters, sums
        # No graph of autograd is kept that nobody asked for: its nodes of weights belong to the stream that they were made
        # on, and a capture on another one that meets them is invalid.
        with torch.no_grad():
            self.hidden_TD = run(inputs).clone()
        self.gradient_TD = torch.zeros_like(self.hidden_TD)
        self._hidden_TD: Tensor | None = None

    def forward(self) -> None:
        with torch.enable_grad():
            self._hidden_TD = self.run(self.inputs)
        self.hidden_TD.copy_(self._hidden_TD.detach())

    def backward(self) -> None:
        assert self._hidden_TD is not None, "a backward belongs to the forward before it"
        found = torch.autograd.grad(self._hidden_TD, self.parameters, self.gradient_TD)
        self._hidden_TD = None
        torch._foreach_add_(list(self.sums), list(found))
