"""A result on disk: whole or not at all, since a call on a machine that is lent may be cut off while it is written."""

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Makes the folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")
    part.replace(path)
