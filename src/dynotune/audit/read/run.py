"""What a run has left in its folder: Dynotune's, or that of transformers' Trainer and what stands on it."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynotune.audit.facts.run import RunFacts
from dynotune.audit.regular import start_of
from dynotune.errors import DataError

LARGEST = 256 << 20
"""Bytes of a file that is read."""

FILES = 20_000
"""Files that are listed."""


def read_run(folder: Path) -> RunFacts:
    """Raises `DataError` where the folder holds no record of a run. Nothing is unpickled."""
    files = dict(_files(folder))
    if "metrics.jsonl" in files and "config.yaml" in files:
        return _own(folder, files)
    state = _state_file(files)
    if state is None:
        raise DataError(
            f"{folder}: neither a run folder of Dynotune (`metrics.jsonl`, `config.yaml`) nor an output folder with a"
            " `trainer_state.json`. Give the folder that `output_dir` names."
        )
    told = _json(folder / state)
    history = told.get("log_history")
    return RunFacts(
        str(folder),
        "transformers",
        [row for row in history if isinstance(row, Mapping)] if isinstance(history, list) else [],
        {name: value for name, value in told.items() if name != "log_history"},
        files=files,
    )


def _own(folder: Path, files: Mapping[str, int]) -> RunFacts:
    from dynotune.config.reading.files import read_file

    metrics = []
    with (folder / "metrics.jsonl").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue  # the last line of a run that was killed
            if isinstance(row, dict):
                metrics.append(row)
    parts = {name: _json(folder / f"{name}.json") for name in ("environment", "plan", "ledger", "engagement")}
    return RunFacts(str(folder), "Dynotune", metrics, read_file(folder / "config.yaml").values, files=files, **parts)


def _state_file(files: Mapping[str, int]) -> str | None:
    """The folder's own state, else that of its last checkpoint."""
    if "trainer_state.json" in files:
        return "trainer_state.json"
    steps = {}
    for name in files:
        parent, _, file = name.rpartition("/")
        if file == "trainer_state.json" and "/" not in parent and (step := parent.rpartition("-")[2]).isdigit():
            steps[int(step)] = name
    return steps[max(steps)] if steps else None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = start_of(path, LARGEST + 1)
        found = {} if len(content) > LARGEST else json.loads(content.decode(errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    left = FILES
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            try:
                size = path.lstat().st_size
                if not path.is_file():
                    continue
            except OSError:
                continue
            yield path.relative_to(folder).as_posix(), size
            left -= 1
            if not left:
                return
