"""What compiling cost in a run, what it found again, what went wrong, and after how many steps it has paid for itself."""

from dataclasses import asdict, dataclass
from typing import Any

from dynotune.model.compiled.function import Shape


@dataclass(frozen=True, slots=True)
class Compilation:
    """One graph that was made, forward and backward together."""

    layer: str
    """The layer in whose call it was made."""

    shape: Shape
    seconds: float
    """From the call to its return: tracing, compiling or finding it on disk, and one run of the layer."""

    found: bool
    """Whether the compiler had it on disk."""

    again: bool
    """Whether this layer had been called with this shape before: a recompilation, which should not be."""

    reason: str
    """The guard that failed, in the compiler's words; empty for the first graph of a shape."""

    def made_again(self) -> str:
        """A recompilation, as a sentence's end."""
        return f"{self.layer} was compiled again for {self.shape} ({self.seconds:.1f} s): {self.reason}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Forward and backward of one micro-batch, measured here both ways."""

    tokens: int
    other_seconds: float
    """As it would run without compiled layers, with the kernels that stand back behind them."""

    compiled_seconds: float

    @property
    def saved_a_token(self) -> float:
        """Seconds that compiled layers save a token; negative where they cost."""
        return (self.other_seconds - self.compiled_seconds) / self.tokens


@dataclass(frozen=True, slots=True)
class CompileReport:
    """Of one run so far."""

    layers: int
    compilations: tuple[Compilation, ...]
    eager: tuple[str, ...] = ()
    """What runs as it is written although it was to be compiled: layer, shape, reason."""

    aside_calls: int = 0
    """Calls with gradients that ran as they are written."""

    folder: str | None = None
    """Where the compiler keeps its results; None where that is not known."""

    comparison: Comparison | None = None

    @property
    def graphs(self) -> int:
        return len(self.compilations)

    @property
    def seconds(self) -> float:
        """What compiling took in all, recompilations too."""
        return sum(one.seconds for one in self.compilations)

    @property
    def recompilations(self) -> tuple[Compilation, ...]:
        return tuple(one for one in self.compilations if one.again)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(sorted({one.shape for one in self.compilations}))

    def break_even_steps(self, tokens_a_step: float) -> float | None:
        """Steps after which compiling has paid for itself, by what was measured here. `tokens_a_step`: processed tokens.

        None where nothing was compared; infinite where it does not save time.
        """
        if self.comparison is None:
            return None
        saved = self.comparison.saved_a_token * tokens_a_step
        return self.seconds / saved if saved > 0 else float("inf")

    def lines(self, tokens_a_step: float | None = None) -> list[str]:
        """What is to be said when the run has compiled: cost, gain, faults."""
        lines = [self._cost()] if self.compilations else []
        if self.comparison is not None:
            lines.append(self._gain(tokens_a_step))
        # 4 kinds of layers are 4 graphs a shape; of 28 layers, 28 graphs are a fault of how they are written.
        for shape in self.shapes:
            made = [one for one in self.compilations if one.shape == shape and not one.again]
            if len(made) > max(2, self.layers // 4):
                lines.append(
                    f"note: compiled layers: {self.layers} layers needed {len(made)} graphs for {shape}, since they are not"
                    f" alike to the compiler: {made[-1].reason}"
                )
        lines += [f"fault: {one.made_again()}" for one in self.recompilations]
        if len(again := self.recompilations) > 1:
            seconds = sum(one.seconds for one in again)
            lines.append(f"fault: {len(again)} graphs were made again in all, in {seconds:.1f} s")
        lines += [f"fault: not compiled: {one}" for one in self.eager]
        return lines

    def to_json(self, tokens_a_step: float | None = None) -> dict[str, Any]:
        """Plain values. tokens_a_step: as `break_even_steps`; None where it is not known."""
        steps = self.break_even_steps(tokens_a_step) if tokens_a_step else None
        never = steps == float("inf")
        return {
            "layers": self.layers,
            "graphs": self.graphs,
            "seconds": round(self.seconds, 3),
            "found_on_disk": sum(one.found for one in self.compilations),
            "folder": self.folder,
            "compilations": [
                {**asdict(one), "shape": one.shape._asdict(), "seconds": round(one.seconds, 3)}
                for one in self.compilations
            ],
            "eager": list(self.eager),
            "aside_calls": self.aside_calls,
            "comparison": asdict(self.comparison) if self.comparison else None,
            "break_even_steps": None if steps is None or never else round(steps, 1),
            "why_no_break_even": self._why_no_break_even(tokens_a_step, never),
        }

    def _why_no_break_even(self, tokens_a_step: float | None, never: bool) -> str | None:
        if self.comparison is None:
            return "no micro-batch was run both ways"
        if not tokens_a_step:
            return "how many tokens a step has is not known"
        return "it saves no time here" if never else None

    def _cost(self) -> str:
        found = sum(one.found for one in self.compilations)
        state = "warm" if found == self.graphs else "cold" if not found else f"{found} of {self.graphs} graphs found"
        where = f"compile cache {self.folder}: {state}" if self.folder else f"compile cache: {state}"
        counts = len({shape.tokens for shape in self.shapes})
        return (
            f"compiled layers: {self.graphs} {_plural('graph', self.graphs)} for {counts} {_plural('token count', counts)}"
            f" in {self.seconds:.1f} s ({where})"
        )

    def _gain(self, tokens_a_step: float | None) -> str:
        one = self.comparison
        assert one is not None
        line = (
            f"compiled layers: {1e3 * one.compiled_seconds:.1f} ms a micro-batch of {one.tokens:,} tokens, forward and"
            f" backward, against {1e3 * one.other_seconds:.1f} ms without them"
        )
        steps = self.break_even_steps(tokens_a_step) if tokens_a_step else None
        if steps is None:
            return line
        if steps == float("inf"):
            return f"{line}: it does not pay here"
        return f"{line}: it has paid for its {self.seconds:.1f} s after {max(1, round(steps)):,} steps"


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"
