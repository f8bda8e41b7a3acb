"""What was measured of a row, whoever wrote it: the files of `python -m benchmarks.peers`, and one that is older.

The older one was written by `python -m benchmarks.beside_trl_dpo`, which is gone: it names its command and the commit at
which it can be run again. A row's newer file takes the older's place.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.rows import ROWS, who
from dynotune.errors import DataError

OLDER: Mapping[str, Mapping[str, str]] = {"h200_beside_trl_dpo_mix.json": {"preference-mix": "dpo-mix"}}
"""By file its works and the rows that they are now."""

SAME = ("commit", "hardware", "host", "versions", "flash_attn")
"""What arms must share to be compared."""


@dataclass(frozen=True)
class Measured:
    """One row. arms: by name their figures, or `failed` with the error; at least one of ours and one of a peer are whole."""

    row: str
    source: str
    provenance: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]

    @property
    def rate(self) -> str:
        """The key of the figure that a row is about."""
        return "pairs_per_second" if ROWS[self.row].pairs else "real_tokens_per_second"

    def whole(self, ours: bool) -> dict[str, Mapping[str, Any]]:
        """Arms of ours, or of peers, that were measured to their end, the fastest first."""
        arms = [(n, a) for n, a in self.arms.items() if "failed" not in a and (who(n) == "dynotune") == ours]
        return dict(sorted(arms, key=lambda arm: -arm[1][self.rate]))

    def failed(self) -> dict[str, str]:
        """Of the others the error."""
        return {name: str(arm["failed"]) for name, arm in self.arms.items() if "failed" in arm}

    def out_of_memory(self) -> list[str]:
        return [name for name, error in self.failed().items() if "OutOfMemory" in error or "out of memory" in error]


def all_measured(folder: Path) -> list[Measured]:
    """In the order of `ROWS`. Rows without a peer beside us are left out.

    Raises `DataError` where arms of one row do not belong together.
    """
    found = {one.row: one for one in _older(folder)} | {one.row: one for one in _newer(folder)}
    return [found[row] for row in ROWS if row in found]


def _newer(folder: Path) -> Iterator[Measured]:
    for path in sorted(folder.glob("peers-*.json")):
        file = json.loads(path.read_text(encoding="utf-8"))
        arms = file["arms"]
        if not arms:
            continue
        first = next(iter(arms.values()))["provenance"]
        for name, arm in arms.items():
            if arm["settings"]["dry"]:
                raise DataError(f"{path.name} is a rehearsal (--dry), no measurement: keep it out of {folder.name}")
            for key in SAME:
                if arm["provenance"].get(key) != first.get(key):
                    raise DataError(
                        f"{path.name}: {name} was measured under another {key} than the arm before it: they are not"
                        f" compared. Run the row again in one call: python -m benchmarks.peers --row {file['row']} --again"
                    )
        yield from _together(file["row"], path.name, first, {name: arm["result"] for name, arm in arms.items()})


def _older(folder: Path) -> Iterator[Measured]:
    for name, works in OLDER.items():
        path = folder / name
        if not path.is_file():
            continue
        file = json.loads(path.read_text(encoding="utf-8"))
        for work, row in works.items():
            origin = {key: file.get(key) for key in ("command", *SAME)}
            yield from _together(row, name, origin, file["works"][work]["arms"])


def _together(row: str, source: str, provenance: Mapping[str, Any], arms: Mapping[str, Any]) -> Iterator[Measured]:
    """The row, where there is something to compare. Every window must hold the same real tokens in each arm."""
    one = Measured(row, source, provenance, arms)
    if not one.whole(ours=True) or not one.whole(ours=False):
        return
    tokens = {name: arm["tokens"] for name, arm in arms.items() if "tokens" in arm}
    if len({tuple(counts) for counts in tokens.values()}) > 1:
        raise DataError(f"{source}: the arms of {row} did not see the same tokens in each window: {tokens}")
    yield one
