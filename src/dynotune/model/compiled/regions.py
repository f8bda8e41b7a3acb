"""The compiled layers of one model: put in, counted, put aside, taken out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from dynotune.model.aside import Aside
from dynotune.model.compiled.compiler import Found, is_limit, why_compiled, why_failed
from dynotune.model.compiled.function import Rulers, Shape, function_of
from dynotune.model.compiled.layer import CompiledLayer
from dynotune.model.compiled.report import Comparison, Compilation, CompileReport

COMPILER = "inductor"


class Regions:
    """Layers that are compiled when they are first called with a shape, until `uninstall`."""

    def __init__(
        self, layers: Mapping[str, nn.Module], compiler: str, mode: str | None, folder: str | None = None
    ) -> None:
        self.compiler, self.mode, self.folder = compiler, mode, folder
        self.paused = False
        """Whether layers run as they are written for now."""

        self.broken: str | None = None
        """Why nothing is compiled any more: the compiler failed once, and would on every layer."""

        self.aside = Aside()
        """Calls with gradients that ran as they are written: no micro-batch of training, a hook, or a failed compilation."""

        self.comparison: Comparison | None = None
        self.tokens_a_step: float | None = None
        """Processed tokens of the run's steps, where that is known."""

        self.on_again: Callable[[Compilation], None] = lambda made: None
        """Told of each recompilation when it has happened."""

        self.rulers = Rulers()
        self.layers = {name: CompiledLayer(layer, name, self) for name, layer in layers.items()}
        self._functions: dict[Shape, Callable[..., Any]] = {}
        self._compilations: list[Compilation] = []
        self._eager: list[str] = []
        self._found = Found.now()
        for one in self.layers.values():
            assert one.layer._compiled_call_impl is None, f"{one.name} is compiled already"
            one.layer._compiled_call_impl = one

    def uninstall(self) -> None:
        """The layers as they were, and the graphs let go. Twice is once."""
        for one in self.layers.values():
            if one.layer.__dict__.get("_compiled_call_impl") is one:
                del one.layer._compiled_call_impl
        self._functions.clear()

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Inside, layers run as they are written. Graphs are kept."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def report(self) -> CompileReport:
        """What was compiled so far."""
        return CompileReport(
            layers=len(self.layers),
            compilations=tuple(self._compilations),
            eager=tuple(self._eager),
            aside_calls=self.aside.calls,
            folder=self.folder,
            comparison=self.comparison,
        )

    @property
    def recompilations(self) -> int:
        """Graphs that were made again."""
        return sum(one.again for one in self._compilations)

    @property
    def runs_eager(self) -> int:
        """How often it was decided that something runs as it is written."""
        return len(self._eager)

    def function(self, shape: Shape) -> Callable[..., Any]:
        """What calls of this shape go through."""
        function = self._functions.get(shape)
        if function is None:
            function = self._functions[shape] = function_of(shape, self.compiler, self.mode)
        return function

    def compiled(self, layer: CompiledLayer, shape: Shape, seconds: float) -> None:
        """Note that a graph was made within this call."""
        before, self._found = self._found, Found.now()
        found = self._found.hits > before.hits and self._found.misses <= before.misses
        reason = why_compiled()
        made = Compilation(layer.name, shape, seconds, found, shape in layer.known, reason)
        self._compilations.append(made)
        if made.again:
            self.on_again(made)

    def failed(self, layer: CompiledLayer, shape: Shape, error: Exception) -> None:
        """Note that the compiler could not, and decide what runs as it is written."""
        reason = why_failed(error)
        if is_limit(error):
            layer.eager[shape] = reason
            self._eager.append(f"{layer.name}, {shape}: {reason}; its last guard: {why_compiled()}")
        else:
            self.broken = reason
            self._eager.append(f"all layers, since {layer.name} failed for {shape}: {reason}")


def compile_layers(
    layers: Mapping[str, nn.Module], compiler: str = COMPILER, mode: str | None = None, folder: str | None = None
) -> Regions:
    """Compile these modules, by name, where they are called with packed micro-batches and gradients.

    Nothing is compiled before the first call. compiler, mode: as `torch.compile` takes them.
    """
    return Regions(layers, compiler, mode, folder)
