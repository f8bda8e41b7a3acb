"""The machine and its packages, each tried for working where that could be done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str | None
    """None: not installed."""

    works: bool | None = None
    """None: not tried."""

    why: str = ""
    """Where it does not work: the error, as a sentence that names it (a failed import is no missing package)."""


@dataclass(frozen=True, slots=True)
class Environment:
    packages: Mapping[str, Package]
    gpus: Sequence[Mapping[str, Any]]
    """As `dynotune env --json` has them."""

    machine: Mapping[str, Any]
    """All of `dynotune env --json`: memory in bytes, cores, driver, disk."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of the environment that concern training (`CUDA_VISIBLE_DEVICES`, `OMP_NUM_THREADS`, ...)."""

    wsl: bool = False
    container: bool = False

    def version(self, package: str) -> str | None:
        found = self.packages.get(package)
        return found.version if found else None
