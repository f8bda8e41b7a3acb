"""Where rows go that are left out: `quarantine.jsonl`, one JSON object a row, with the place and the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.data.rows import BadRow

LARGEST_ROW = 1 << 20
"""Characters of JSON up to which a row is copied whole. Of a longer one only the beginning is kept: its place says
where to find it."""


class Quarantine:
    """Appends bad rows to a file. The file appears with the first one.

    Each row is one write to a file opened for appending, so that a crash or a second writer never tears a line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, bad: BadRow, values: Mapping[str, Any] | None = None) -> None:
        """`values` is the row as read, where it could be read."""
        entry = {
            "file": bad.place.file,
            "line": bad.place.line,
            "reason": bad.reason,
            "detail": bad.detail,
            "beginning": bad.beginning,
        }
        if values is not None:
            row = json.dumps(values, default=str, skipkeys=True)
            if len(row) <= LARGEST_ROW:
                entry["row"] = json.loads(row)
        # ASCII: whatever the row held, lone surrogates included, the file is valid UTF-8 and safe to print.
        line = json.dumps(entry, ensure_ascii=True) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            remaining = memoryview(line.encode("ascii"))
            while remaining:
                remaining = remaining[os.write(handle, remaining) :]
        finally:
            os.close(handle)
