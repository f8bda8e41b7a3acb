"""A configuration file, before anybody says what job it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
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
