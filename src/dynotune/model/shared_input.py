"""Linears that are given the same tensor one after another, such as query, key and value: which those are, and their turn.

The first one called computes all; the others, called with that very tensor, find their output waiting. Which linears share
is seen in a forward pass of the model itself, never guessed from names.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from dynotune.model.two_tokens import run_two_tokens


class Linear(Protocol):
    """What stands in for a linear module."""

    module: Any
    place: int
    """Among the linears that share its input."""

    def kind(self) -> tuple[Any, ...]:
        """What linears must have in common to be computed together."""
        ...


Stand = TypeVar("Stand", bound=Linear)


class SharedInput(ABC, Generic[Stand]):
    """Linears in the order in which they are called. Works within a forward pass of their model only (`Passes`)."""

    def __init__(self, linears: list[Stand]) -> None:
        self.linears = linears
        self.x: Tensor | None = None
        self.waiting: list[Tensor | None] = []
        self.with_grad = False
        self.unclaimed = 0
        """Outputs that were computed and not asked for."""

        for place, linear in enumerate(linears):
            linear.place = place

    @abstractmethod
    def together(self, x: Tensor) -> Sequence[Tensor] | None:
        """The outputs of all linears for `x`; None where they must be computed by themselves."""

    def output(self, linear: Stand, x: Tensor) -> Tensor | None:
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
        ys = self.together(x)
        if ys is None:
            return None
        first, *others = ys
        self.x, self.waiting, self.with_grad = x, [None, *others], torch.is_grad_enabled()
        return first

    def close(self) -> None:
        """Forget what waits."""
        if self.x is not None:
            self.unclaimed += sum(y is not None for y in self.waiting)
            self.x, self.waiting = None, []


class Passes:
    """Forward passes of a model that are under way: only within one are outputs kept waiting."""

    def __init__(self) -> None:
        self.depth = 0
        """Forward passes of modules that are watched."""

        self.shared: Sequence[SharedInput[Any]] = []
        self._handles: list[Any] = []

    @property
    def in_a_pass(self) -> bool:
        """Whether a forward pass of the model runs, or a checkpoint is recomputed: then the weights stay as they are."""
        return self.depth > 0 or torch._C._current_graph_task_id() != -1

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """A pass begins and ends whenever one of `modules` begins and ends its forward pass."""
        for module in modules:
            self._handles.append(module.register_forward_pre_hook(self._begin))
            self._handles.append(module.register_forward_hook(self._end, always_call=True))

    def unwatch(self) -> None:
        """Take the hooks back."""
        while self._handles:
            self._handles.pop().remove()

    def begins(self) -> None:
        """What is done when a pass begins, and none is under way."""

    def _begin(self, module: nn.Module, args: Any) -> None:
        if not self.depth:
            self.begins()
        self.depth += 1

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        self.depth = max(0, self.depth - 1)
        for shared in self.shared:
            shared.close()


Shared = tuple[list[list[str]], str | None]
"""Of `find_shared`."""

Once = Callable[[Callable[[], Shared]], Shared]
"""Asks for what linears share, or knows it."""


def find_shared(
    model: nn.Module, decoders: Iterable[nn.Module], linears: Mapping[str, Linear], compute: torch.dtype
) -> Shared:
    """Names of linears that share their input, in the order in which they are called: run two tokens through each of
    `decoders` and see which linears of one parent get the same tensor in a row.

    In evaluation mode and without gradients: nothing is drawn at random and nothing changes. Also returns why that failed.
    """
    calls: list[tuple[str, Tensor]] = []

    def note(name: str) -> Any:
        return lambda module, args: calls.append((name, args[0])) if args else None

    handles = [linear.module.register_forward_pre_hook(note(name)) for name, linear in linears.items()]
    try:
        _, failed = run_two_tokens(model, decoders, compute)
    finally:
        for handle in handles:
            handle.remove()
    if failed:
        calls.clear()
    return _runs(calls, linears), failed


def _runs(calls: list[tuple[str, Tensor]], linears: Mapping[str, Linear]) -> list[list[str]]:
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


def entrances(model: nn.Module, linears: Iterable[str]) -> list[nn.Module]:
    """The modules that run through a list of layers holding some of `linears`: the decoder, and a vision tower if there is
    one.

    Not the model itself, since the packed forward enters at the decoder.
    """
    found: dict[int, nn.Module] = {}
    for name in linears:
        owner: Any = model
        for part in name.split("."):
            child = owner.get_submodule(part)
            if isinstance(child, nn.ModuleList):
                found[id(owner)] = owner
                break
            owner = child
    return list(found.values())


def leaders(linears: Mapping[str, Linear], together: Iterable[SharedInput[Any]]) -> list[str]:
    """Names of those in whose call the work is done: of linears that are computed together the first."""
    led = {id(other) for shared in together for other in shared.linears[1:]}
    return [name for name, linear in linears.items() if id(linear) not in led]


def groups_in_words(together: Iterable[SharedInput[Any]]) -> str:
    """How many of which size, in brackets behind a blank; nothing where there are none."""
    sizes = Counter(len(shared.linears) for shared in together)
    words = ", ".join(f"{n} groups of {size} in one" for size, n in sorted(sizes.items(), reverse=True))
    return f" ({words})" if words else ""
