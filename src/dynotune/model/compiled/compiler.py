"""What PyTorch's compiler says of its own work: graphs made, the guard that failed, files found again, errors."""

from typing import NamedTuple

from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch._dynamo.utils import counters, get_compilation_metrics

from dynotune.foreign import first_line

COMPILER_ERRORS: tuple[type[Exception], ...] = (TorchDynamoException, FailOnRecompileLimitHit)
"""What compiling raises, by any backend. What a compiled graph raises while it runs is none of these."""

LONGEST = 300
"""Characters of a reason that are kept."""


def graphs_made() -> int:
    """Graphs that this process has compiled so far."""
    return counters["stats"]["unique_graphs"]


class Found(NamedTuple):
    """How often the compiler looked its results up in its files, since the process began."""

    hits: int
    misses: int

    @classmethod
    def now(cls) -> "Found":
        autograd, inductor = counters["aot_autograd"], counters["inductor"]
        return cls(
            autograd["autograd_cache_hit"] + inductor["fxgraph_cache_hit"],
            # A miss of the first only leads to the second.
            inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_bypass"],
        )


def why_compiled() -> str:
    """The guard that failed when a frame was compiled again last, in the compiler's words; empty where it was the first."""
    metrics = get_compilation_metrics()
    reason = next((one.recompile_reason for one in reversed(metrics) if one.is_forward is not False), None)
    return shortened(first_line(reason or ""))


def why_failed(error: Exception) -> str:
    """What the compiler could not do, in a line."""
    cause = error.__cause__ if is_limit(error) and error.__cause__ is not None else error
    cause = getattr(cause, "inner_exception", None) or cause  # of a backend
    return f"{type(cause).__name__}: {shortened(first_line(cause))}"


def is_limit(error: Exception) -> bool:
    """Whether only the number of graphs was too high, for this call and those like it."""
    return isinstance(error, FailOnRecompileLimitHit)


def shortened(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
