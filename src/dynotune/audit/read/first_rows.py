"""The first rows of data files that a project's configurations, scripts and commands name."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynotune.audit.read.columns import rows_of
from dynotune.audit.regular import NotRegularError, leaves, start_of

_MOST_BYTES = 1 << 16
_MOST_FILES = 20
_ENDS = re.compile(r"\.jsonl?\b")
_BEFORE = re.compile(r"[\w./-]+\Z")
_LONGEST_NAME = 200
_SETTINGS = re.compile(r"config|setting|param|args|dataset_info|package|tokenizer|deepspeed|zero|index", re.IGNORECASE)


def first_rows(root: Path, texts: Mapping[str, str]) -> dict[str, list[Mapping[str, Any]]]:
    """By file, relative to the root. Files that cannot be read as rows of JSON are left out, and so are settings."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for name in list(dict.fromkeys(_named(texts)))[:_MOST_FILES]:
        path = root / name
        try:
            if not path.is_file() or leaves(path, root):
                continue
            rows = rows_of(start_of(path, _MOST_BYTES).decode("utf-8", "replace"), whole=name.endswith(".json"))
        except (OSError, ValueError, RecursionError, NotRegularError):
            continue
        if rows:
            found[name] = rows
    return found


def _named(texts: Mapping[str, str]) -> Iterator[str]:
    for file, text in texts.items():
        for end in _ENDS.finditer(text):  # from its end on: a pattern that begins anywhere takes the square of the text
            before = _BEFORE.search(text[max(0, end.start() - _LONGEST_NAME) : end.start()])
            name = "" if before is None else f"{before[0]}{end[0]}"
            if name and not _SETTINGS.search(name.rpartition("/")[2]):
                yield posixpath.normpath(name.lstrip("/"))
                yield posixpath.normpath(posixpath.join(posixpath.dirname(file), name.lstrip("/")))
