"""How a bench is to be measured, whatever its arms are: configurations or commands."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """As it was typed; None: the kind of bench decides."""

    pairs: int | None = None
    most_pairs: int | None = None
    resolution: float = 0.005
    budget: float | None = None
    """GPU seconds."""

    seed: int = 0
    expect: str | None = None
    out: Path | None = None
    command: str = "dynotune bench"
