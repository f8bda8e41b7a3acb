"""Tables of keys for trainers that are not installed. `python -m dynotune.audit.schema.generate` writes them."""

import functools
import json
from importlib.resources import files
from typing import Any

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.schema.classes import Key

COMPUTED = "..."
"""How a table writes a default that code computes."""


def file_of(trainer: Trainer, method: Method | None) -> str:
    return "_".join([trainer.value.lower().replace("-", "_"), *([method.value] if method else [])]) + ".json"


@functools.cache
def shipped(trainer: Trainer, method: Method | None) -> tuple[dict[str, Key], dict[str, str]]:
    """Keys, and the versions of the packages that they were read from; both empty where there is no table."""
    table = files("dynotune.audit.schema").joinpath("tables", file_of(trainer, method))
    if not table.is_file():
        return {}, {}
    content: dict[str, Any] = json.loads(table.read_text("utf-8"))
    keys = {name: _key(name, *entry) for name, entry in content["keys"].items()}
    return keys, content["versions"]


@functools.cache
def shipped_classes(trainer: Trainer, method: Method | None) -> dict[str, frozenset[str]]:
    """Names of keys by class, of a table that has those of several; empty where there is none."""
    table = files("dynotune.audit.schema").joinpath("tables", file_of(trainer, method))
    content: dict[str, Any] = json.loads(table.read_text("utf-8")) if table.is_file() else {}
    every = frozenset(content.get("keys", ()))
    return {name: every - frozenset(others) for name, others in content.get("not_of", {}).items()}


def _key(name: str, type_: str, default: Any = None, *rest: Any) -> Key:
    required, deprecated = (*rest, False, "")[:2]
    value = Unknown("its default is computed") if default == COMPUTED else default
    return Key(name, type_, value, bool(required), str(deprecated))


@functools.cache
def every_key() -> frozenset[str]:
    """Names of keys of all tables."""
    tables = files("dynotune.audit.schema").joinpath("tables").iterdir()
    return frozenset(
        name
        for table in tables
        if table.name.endswith(".json")
        for name in json.loads(table.read_text("utf-8"))["keys"]
    )
