"""Which settings of a run may be shown to others."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any


def without_local_paths(value: Any) -> Any:
    """The value with every absolute path replaced by its last part, at any depth: where a disk was mounted concerns
    nobody else."""
    if isinstance(value, Mapping):
        return {key: without_local_paths(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_local_paths(item) for item in value]
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str) and (value.startswith(("/", "~", "\\\\")) or value[1:3] in (":\\", ":/")):
        return value.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return value
