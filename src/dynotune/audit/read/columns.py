"""The columns of data files that configurations name: by their first rows, and no more of them."""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job
from dynotune.audit.regular import NotRegularError, leaves, start_of

_MOST_BYTES = 1 << 18
_ROWS = 50
"""Rows whose columns are put together: what none of them has, is taken for missing."""

_MOST_FILES = 20


def columns_named(
    root: Path, configs: Sequence[ConfigFile], jobs: Sequence[Job]
) -> dict[str, Mapping[str, tuple[str, ...]]]:
    """By file, relative to the root: each column, with the keys of its first entry where it has lists of mappings (turns of
    a dialog). Files that cannot be read as rows of JSON are left out."""
    found: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for name in list(dict.fromkeys((*_of_llama_factory(configs), *_of_axolotl(jobs))))[:_MOST_FILES]:
        path = root / name
        try:
            if not path.is_file() or leaves(path, root):
                continue
            rows = rows_of(start_of(path, _MOST_BYTES).decode("utf-8", "replace"), whole=name.endswith(".json"))
        except (OSError, ValueError, RecursionError, NotRegularError):
            continue
        if rows:
            found[name] = _columns(rows)
    return found


def _of_llama_factory(configs: Sequence[ConfigFile]) -> Iterator[str]:
    for config in configs:
        if config.kind != "llama-factory data":
            continue
        for entry in config.values.values():
            name = entry.get("file_name") if isinstance(entry, Mapping) else None
            if isinstance(name, str) and not name.startswith(("/", "..", "~")):
                yield posixpath.normpath(posixpath.join(posixpath.dirname(config.file), name))


def _of_axolotl(jobs: Sequence[Job]) -> Iterator[str]:
    for job in jobs:
        listed = job.get("datasets")
        for entry in listed if isinstance(listed, list | tuple) else ():
            for name in (entry.get("path"), entry.get("data_files")) if isinstance(entry, Mapping) else ():
                if (
                    isinstance(name, str)
                    and name.endswith((".json", ".jsonl"))
                    and not name.startswith(("/", "..", "~"))
                ):
                    yield posixpath.normpath(name)


def rows_of(text: str, *, whole: bool) -> list[Mapping[str, Any]]:
    """Of lines, or of one list; a list that is cut here is no JSON any more, and its lines are none either."""
    if whole and text.lstrip().startswith("["):
        held = json.loads(text)
        return [one for one in held[:_ROWS] if isinstance(one, Mapping)] if isinstance(held, list) else []
    lines = [line for line in text.split("\n")[: _ROWS + 1] if line.strip()]
    rows = [
        json.loads(line)
        for line in (lines[:_ROWS] if len(lines) > _ROWS or text.endswith("\n") else lines[:-1] or lines)
    ]
    return [one for one in rows if isinstance(one, Mapping)]


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for key, value in row.items():
            first = value[0] if isinstance(value, list) and value else None
            keys = tuple(str(one) for one in first) if isinstance(first, Mapping) else ()
            found[str(key)] = found.get(str(key)) or keys
    return found
