"""How a bench is to be measured, whatever its arms are: configurations or commands."""

from dataclasses import dataclass
from pathlib import Path

from dynotune.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """As it was typed; None: the kind of bench decides. Raises `ConfigError` for what no generator takes as a seed."""

    pairs: int | None = None
    most_pairs: int | None = None
    resolution: float = 0.005
    budget: float | None = None
    """GPU seconds."""

    seed: int = 0
    expect: str | None = None
    out: Path | None = None
    command: str = "dynotune bench"

    def __post_init__(self) -> None:
        if self.seed < 0:  # Python's generator takes it, and numpy's, which is asked behind all blocks, does not
            raise ConfigError(f"`--bench_seed {self.seed}` is no seed: give 0 or more.")
