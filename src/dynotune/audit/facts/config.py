"""A configuration file, before anybody says what job it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class ConfigFile:
    file: str
    kind: str
    """Whose: `trl sft`, `axolotl`, `llama-factory`, `accelerate`, `deepspeed`, `hydra`, `dynotune sft`, ... or `unknown`."""

    values: Mapping[str, Any]
    """Plain values, nested as in the file, with `${...}` resolved where that can be done."""

    places: Mapping[str, Place]
    """By path of keys (`datasets.0.path`)."""

    comments: Mapping[int, str]
    """By line, without the mark."""

    repeated: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    """Keys that stand more than once in one mapping, by path; the last place is the one that counts."""

    def at(self, path: str) -> Any:
        """The value that stands under a path of `places`; None where there is none."""
        here: Any = self.values
        for part in path.split("."):
            if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
                here = here[int(part)]
            else:
                here = here.get(part) if isinstance(here, Mapping) else None
        return here
