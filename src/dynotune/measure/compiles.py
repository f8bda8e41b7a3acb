"""Compilations of this process so far. PyTorch's compiler is not imported to ask: where nothing loaded it, nothing was
compiled."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_counters: dict[str, Any] | None = None
"""Dynamo's own, once it is there: to look for the module in each step took 1.7 us more, with cold caches."""


def graphs() -> int:
    """Graphs that dynamo has made."""
    global _counters
    if _counters is None:
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return 0
        _counters = dynamo.counters  # cleared at times, and never another one
    stats = _counters.get("stats")
    # A Counter asked by [] goes through Python where it has none.
    return int(stats.get("unique_graphs", 0)) if stats else 0


_LIMIT = re.compile(r"(recompile|cache.size).limit", re.IGNORECASE)
"""In dynamo's reason for a function that it leaves alone from then on."""


def limits_met() -> int:
    """Functions that dynamo has given up, since they had been compiled as often as it allows: they run as without it, and
    nothing is compiled any more."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    reasons = dynamo.counters.get("unimplemented", {}) if dynamo is not None else {}
    return sum(int(count) for reason, count in reasons.items() if _LIMIT.search(str(reason)))


def limit() -> int | None:
    """Graphs of one function up to which dynamo compiles it; None where it is not there."""
    config = sys.modules.get("torch._dynamo.config")
    found = getattr(config, "recompile_limit", None)
    return found if isinstance(found, int) else None


def compile_seconds() -> float:
    """What dynamo took to make graphs, forward and backward."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0.0 if dynamo is None else float(dynamo.calculate_time_spent().get("total_wall_time", 0.0))


@dataclass(slots=True)
class Compiles:
    """What was compiled since the last look."""

    graphs: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.graphs, self.seconds = graphs(), compile_seconds()

    def since(self) -> tuple[int, float]:
        """Graphs, and the seconds that they took. Looks at the seconds only where graphs were made."""
        now = graphs()
        made = now - self.graphs
        if not made:
            return 0, 0.0
        seconds = compile_seconds()
        took, self.graphs, self.seconds = seconds - self.seconds, now, seconds
        return made, max(0.0, took)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """What is compiled inside counts for nothing here."""
        made, seconds = graphs(), compile_seconds()
        try:
            yield
        finally:
            self.graphs += graphs() - made
            self.seconds += compile_seconds() - seconds
