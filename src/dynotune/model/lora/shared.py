"""Linears that are given the same tensor one after another, such as query, key and value: which those are, and their turn.

The first one called computes all; the others, called with that very tensor, find their output waiting. Which linears share
is seen in a forward pass of the model itself, never guessed from names.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dynotune.model.lora.function import LoraLinears

if TYPE_CHECKING:
    from dynotune.model.lora.left_out import LeftOut
    from dynotune.model.lora.linear import FusedLinear


class SharedInput:
    """Linears in the order in which they are called. Works within a forward pass of their model only (`open`)."""

    def __init__(self, linears: "list[FusedLinear]") -> None:
        self.linears = linears
        self.a: Tensor | None = None
        """Their A in the dtype that is computed with, one below the other [R, I]; None where A are in that dtype."""

        self.left_out: LeftOut | None = None
        """What the next call leaves to its neighbour."""

        self.x: Tensor | None = None
        self.waiting: list[Tensor | None] = []
        self.with_grad = False
        self.unclaimed = 0
        """Outputs that were computed and not asked for."""

        for place, linear in enumerate(linears):
            linear.shared, linear.place = self, place

    def output(self, linear: "FusedLinear", x: Tensor) -> Tensor | None:
        """The output of `linear` for `x`, or None where it must be computed by itself."""
        if self.x is x and self.with_grad == torch.is_grad_enabled():
            y = self.waiting[linear.place]
            self.waiting[linear.place] = None
            if linear.place == len(self.linears) - 1:
                self.close()
            if y is not None:
                return y
        if linear.place:
            return None
        self.close()
        scale = linear.scale()
        if not all(other.is_plain(x) and not other.drops() and other.scale() == scale for other in self.linears):
            return None
        first, *others = self._compute(x, scale)
        self.x, self.waiting, self.with_grad = x, [None, *others], torch.is_grad_enabled()
        return first

    def why_apart(self) -> str | None:
        """Why training computes these linears one by one, by their settings as they are now; None if it does not."""
        if any(linear.drops_in_training() for linear in self.linears):
            return "dropout draws a mask of its own for each"
        if len({linear.scale() for linear in self.linears}) > 1:
            return "their adapters are scaled differently"
        return None

    def close(self) -> None:
        """Forget what waits."""
        if self.x is not None:
            self.unclaimed += sum(y is not None for y in self.waiting)
            self.x, self.waiting = None, []

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


def find_shared(
    model: nn.Module, decoders: Iterable[nn.Module], linears: "dict[str, FusedLinear]", compute: torch.dtype
) -> tuple[list[list[str]], str | None]:
    """Names of linears that share their input, in the order in which they are called: run two tokens through each of
    `decoders` and see which linears of one parent get the same tensor in a row.

    In evaluation mode and without gradients: nothing is drawn at random and nothing changes. Also returns why that failed.
    """
    calls: list[tuple[str, Tensor]] = []

    def note(name: str) -> Any:
        return lambda module, args: calls.append((name, args[0])) if args else None

    training = {module: module.training for module in model.modules()}
    handles = [linear.module.register_forward_pre_hook(note(name)) for name, linear in linears.items()]
    failed = None
    try:
        model.eval()
        for decoder in decoders:
            device = next(decoder.parameters()).device
            ids = torch.zeros(1, 2, dtype=torch.int64, device=device)
            cast: AbstractContextManager[Any] = nullcontext()  # a skeleton has no autocast
            if device.type != "meta":
                cast = torch.autocast(device.type, compute, enabled=compute != torch.float32)
            with torch.no_grad(), cast:
                decoder(input_ids=ids, use_cache=False)
    except (TypeError, ValueError, RuntimeError) as error:  # it wants other inputs than tokens
        failed = f"{type(error).__name__}: {error}"
        calls.clear()
    finally:
        for handle in handles:
            handle.remove()
        for module, was in training.items():
            module.training = was
    return _runs(calls, linears), failed


def _runs(calls: list[tuple[str, Tensor]], linears: "dict[str, FusedLinear]") -> list[list[str]]:
    """Runs of two or more names with one input, one parent, and one dtype of their weights; called once each."""
    runs: list[list[str]] = []
    last: Tensor | None = None
    for name, x in calls:
        if x is last and name.rpartition(".")[0] == runs[-1][-1].rpartition(".")[0]:
            runs[-1].append(name)
        else:
            runs.append([name])
        last = x
    times = [name for name, _ in calls]
    return [
        run for run in runs
        if len(run) > 1 and all(times.count(name) == 1 for name in run) and len({linears[name].kind() for name in run}) == 1
    ]  # fmt: skip
