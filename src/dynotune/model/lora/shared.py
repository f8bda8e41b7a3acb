"""LoRA linears that are given the same tensor one after another, computed in one function."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dynotune.model.lora.function import LoraLinears
from dynotune.model.shared_input import SharedInput

if TYPE_CHECKING:
    from dynotune.model.lora.left_out import LeftOut
    from dynotune.model.lora.linear import FusedLinear


class LoraShared(SharedInput["FusedLinear"]):
    """As `SharedInput`."""

    def __init__(self, linears: "list[FusedLinear]") -> None:
        super().__init__(linears)
        self.a: Tensor | None = None
        """Their A in the dtype that is computed with, one below the other [R, I]; None where A are in that dtype."""

        self.left_out: LeftOut | None = None
        """What the next call leaves to its neighbour."""

        for linear in linears:
            linear.shared = self

    def together(self, x: Tensor) -> tuple[Tensor, ...] | None:
        scale = self.linears[0].scale()
        if not all(other.is_plain(x) and not other.drops() and other.scale() == scale for other in self.linears):
            return None
        return self._compute(x, scale)

    def why_apart(self) -> str | None:
        """Why training computes these linears one by one, by their settings as they are now; None if it does not."""
        if any(linear.drops_in_training() for linear in self.linears):
            return "dropout draws a mask of its own for each"
        if len({linear.scale() for linear in self.linears}) > 1:
            return "their adapters are scaled differently"
        return None

    def _compute(self, x: Tensor, scale: float) -> tuple[Tensor, ...]:
        linears = self.linears
        if torch.compiler.is_compiling():
            linears[0].in_graph = True
        weights = [linear.weights() for linear in linears]
        if self.left_out is not None:  # whose kernel gives the gradients of B
            weights = [(A, B.detach()) for A, B in weights]
        return LoraLinears.apply(  # type: ignore[no-any-return, no-untyped-call]
            x.to(linears[0].compute), None, self.a, scale, linears[0].wide, self.left_out,
            *(linear.base.weight for linear in linears), *(linear.base.bias for linear in linears),
            *(A for A, _ in weights), *(B for _, B in weights), *(linear.b for linear in linears),
        )  # fmt: skip
