"""A JSON Schema (2020-12) of the configuration, so that editors complete, describe and check it."""

import inspect
from typing import Any

from dynotune.config.checking.checked import CheckedConfig
from dynotune.config.fates.aliases import ALIASES
from dynotune.config.fates.fate import Fate
from dynotune.config.fates.launcher import LAUNCHER
from dynotune.config.fates.legacy import LEGACY, RENAMED
from dynotune.config.keys.topics import topics
from dynotune.speedups.registry import speedups, switches

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(model: type[CheckedConfig]) -> dict[str, Any]:
    """The schema of a whole configuration file.

    Keys that are superseded, refused, renamed or another trainer's are there as deprecated, with the reason, so that an
    editor shows it where the key is written.
    """
    schema = model.model_json_schema()
    method, properties = model.method, schema["properties"]
    for key in method.without:
        del properties[key]
    for topic in topics(model):
        for key in topic.fields:
            properties[key]["description"] = inspect.cleandoc(properties[key]["description"])
            _accept_spellings(properties[key])
    properties["speedups"].update(_speedups())
    for key, fate in (*method.fates.items(), *LEGACY.items(), *LAUNCHER.items()):
        if key not in properties:
            properties[key] = _deprecated(_sentence(fate))
    for key, new in RENAMED.items():
        properties.setdefault(key, _deprecated(f"Old name of `{new}`, taken as such."))
    for key, (trainer, suggestion) in ALIASES.items():
        said = _deprecated(f"A name of {trainer}; here: {method.aliases.get(key, suggestion)}.")
        properties.setdefault(key, {**said, "not": {}})
    return {
        "$schema": DIALECT,
        "title": f"Dynotune {method.command.upper()} configuration",
        **{k: v for k, v in schema.items() if k != "title"},
    }


def _speedups() -> dict[str, Any]:
    """An entry for each speed-up there is. Others are no keys."""
    entries: dict[str, Any] = {}
    for name in switches():
        one = speedups()[name]
        entries[name] = {"enum": ["auto", "on", "off"], "description": f"{one.summary} ({one.kind}; {one.default})"}
        _accept_spellings(entries[name])
    return {"properties": entries, "additionalProperties": False}


def _accept_spellings(entry: dict[str, Any]) -> None:
    if entry.get("type") == "array" and "enum" in entry.get("items", {}):
        # A list of one, as TRL's files write it.
        word = {"enum": entry["items"]["enum"]}
        entry["anyOf"] = [{key: entry.pop(key) for key in ("type", "items", "minItems") if key in entry}, word]
    # YAML 1.1 reads an unquoted `no` or `off` as false; editors follow it, and so does the loader.
    words = set(entry.get("enum", ()))
    if {"no", "off"} & words:
        entry["enum"] = [*entry["enum"], False]
        entry.pop("type", None)
    if "on" in words:
        entry["enum"] = [*entry["enum"], True]


def _deprecated(description: str) -> dict[str, Any]:
    return {"deprecated": True, "description": description}


def _sentence(fate: Fate) -> str:
    if fate.key is not None:
        return f"transformers' newer name of `{fate.key}`, taken as such."
    instead = f" {fate.instead[0].upper()}{fate.instead[1:]}." if fate.instead else ""
    return f"{str(fate.kind).capitalize()}: {fate.reason}.{instead}"
