"""What a command reports of its training: a JSON object with `tokens` and `seconds`, in a file or on its standard output.

What it says is taken at its word within what is possible: seconds fit into the process, counts are counts.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dynotune.config.checking.problems import did_you_mean
from dynotune.errors import DataError
from dynotune.printable import printable

VARIABLE = "DYNOTUNE_BENCH_REPORT"
"""Names the file that a command may write its report to."""

REPORT = (
    f'Have it print {{"tokens": 123456, "seconds": 78.9}} as its last line of JSON, or write that to the file that the'
    f" variable {VARIABLE} names: the real tokens that it trained on, and the seconds that its training took."
)
HOW = f"{REPORT} Or have both counted from outside, of a script in Python: `--steps 20`."

LARGEST_COUNT = 10**15
LARGEST_FILE = 1 << 20
LARGEST_OUTPUT = 1 << 22
"""Bytes of the end of a standard output in which a report is looked for."""


@dataclass(frozen=True, slots=True)
class Told:
    """A report. None: it was not told."""

    tokens: int
    """Real ones: of documents, no padding."""

    seconds: float
    """Of the training, without start, loading and compilation."""

    label_tokens: int | None = None
    processed_tokens: int | None = None
    """Real tokens and padding."""

    steps: int | None = None
    """Updates."""

    loss: float | None = None
    """The last one."""

    examples: int | None = None
    peak_memory: int | None = None
    """Bytes that were allocated at most on a device."""

    devices: int = 1
    """That the command used."""


KEYS = tuple(field.name for field in fields(Told))
NUMBERS = ("seconds", "loss")


def report_of(file: Path, output: Path, wall: float) -> Told:
    """file: which the command may have written. output: what it printed. wall: seconds of its whole process.

    Raises `DataError` where there is no report, or one that cannot be.
    """
    if file.exists():
        return told(_of_file(file), wall)
    found = _of_output(output)
    if found is None:
        raise DataError(f"it reported no tokens and seconds. {HOW}")
    return told(found, wall)


def told(report: Mapping[str, Any], wall: float) -> Told:
    """Check a report. Keys of others are left alone, unless they look like one of ours. Raises `DataError`."""
    for key in report:
        if key not in KEYS and (hint := did_you_mean(key, KEYS)):
            raise DataError(f"its report has `{printable(key, 60)}`.{hint} {HOW}")
    for key in ("tokens", "seconds"):
        if report.get(key) is None:
            raise DataError(f"its report has no `{key}`. {HOW}")
    known = {key: report[key] for key in KEYS if report.get(key) is not None}
    values: dict[str, Any] = {
        key: _number(key, value) if key in NUMBERS else _count(key, value) for key, value in known.items()
    }
    seconds = values["seconds"]
    if seconds <= 0:
        raise DataError(f"its report has `seconds: {seconds:g}`: seconds of training are above 0.")
    if seconds > wall:
        raise DataError(
            f"its report has `seconds: {seconds:g}`, and its whole process took {wall:.3f} s: seconds of one training"
            " are meant, on the clock of the wall, not added up over processes."
        )
    if values.get("processed_tokens", math.inf) < values["tokens"]:
        raise DataError("its report has fewer `processed_tokens` than `tokens`: the former are the latter and padding.")
    if values.get("label_tokens", 0) > values["tokens"]:
        raise DataError("its report has more `label_tokens` than `tokens`: the former are among the latter.")
    return Told(**values)


def _number(key: str, value: Any) -> float:
    # A bool is an int in Python, and True seconds are no seconds.
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST_COUNT:
        raise DataError(f"its report has `{key}: {_shown(value)}`, which is no number that it can be.")
    if not math.isfinite(value):
        raise DataError(f"its report has `{key}: {_shown(value)}`: a finite number is needed.")
    return float(value)


def _count(key: str, value: Any) -> int:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not 0 <= value <= LARGEST_COUNT:
        raise DataError(f"its report has `{key}: {_shown(value)}`, which is no count.")
    if key in ("tokens", "devices") and value == 0:
        raise DataError(f"its report has `{key}: 0`: nothing was trained.")
    return int(value)


def _shown(value: Any) -> str:
    return printable(repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number", 60)


def _of_file(file: Path) -> dict[str, Any]:
    where = f"what it wrote to {VARIABLE}"
    if not file.is_file() or file.stat().st_size > LARGEST_FILE:
        raise DataError(f"{where} is no file of at most {LARGEST_FILE:,} bytes. {HOW}")
    found = _object(file.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise DataError(f"{where} is no JSON object. {HOW}")
    return found


def _of_output(output: Path) -> dict[str, Any] | None:
    """The last line that is an object with one of the two keys; a trainer may print others behind it."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - LARGEST_OUTPUT))
        text = file.read().decode("utf-8", errors="replace")
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{"):
            found = _object(line)
            if found is not None and {"tokens", "seconds"} & found.keys():
                return found
    return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # numbers of thousands of digits are a ValueError too
        return None
    return found if isinstance(found, dict) else None
