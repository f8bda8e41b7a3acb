"""Results that were kept in the cache folder: by machine with its versions, kind of work, version of the definitions.

`benches/MACHINE/WORK-dN/NAME.json`, each file written whole or not at all, by any number of processes at the same time. A
name is a date, a few words and the commit. What cannot be kept or read is said, and never ends a bench or a run.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from dynotune.cache_folder import cache_folder
from dynotune.errors import DataError
from dynotune.printable import printable
from dynotune.results.result import Result, Withdrawn
from dynotune.speedups.machine import Machine

LOCK_SECONDS = 10
"""Longer nobody holds the lock, who is alive: a write takes milliseconds."""

WORDS = 60
"""Characters of the words in a name."""

IN_FOLDER = "bench.json"
"""The result, in the folder of its bench."""

Say = Callable[[str], None]


def benches_folder() -> Path:
    """Where the results of all machines lie."""
    return cache_folder() / "benches"


def machine_of(result: Result) -> Machine:
    """The machine of a result; what it does not tell is empty."""
    return Machine(**{field.name: str(result.machine.get(field.name, "")) for field in fields(Machine)})


def name_of(date: str, words: str, commit: str | None = None) -> str:
    """`2026-11-22-093000-attribute-qwen2-lora-e1d2af1`: sorts by date. date: ISO 8601."""
    day, _, clock = date.partition("T")
    digits = re.sub(r"\D", "", clock)[:6]
    parts = [re.sub(r"[^0-9-]", "", day) or "undated", digits, _slug(words)[:WORDS].strip("-")]
    return "-".join(part for part in (*parts, _slug(commit or "")[:12]) if part)


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


class History:
    """All that was kept in one folder. Reads a file when it is asked for, never all of them at once."""

    def __init__(self, folder: Path | None = None, say: Say | None = None) -> None:
        """folder: default: `benches_folder()`. say: prints a line; default: on stderr."""
        self.folder = folder or benches_folder()
        self.say = say or _on_stderr

    def place(self, machine: Machine, work: str, definitions: int) -> Path:
        """The folder of results that may be compared without a word more."""
        return self.folder / machine.key / f"{_slug(work)[:80] or 'any'}-d{definitions}"

    def keep(self, result: Result) -> tuple[Result, Path | None]:
        """Write it under a name that no other has, and return it as it was written, with its path: None where it could not
        be, which is said."""
        place = self.place(machine_of(result), result.work, result.definitions)
        name = name_of(result.date, _slug(result.label) or f"{result.kind} {result.work}", result.commit)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(place / ".lock", timeout=LOCK_SECONDS):
                free = (f"{name}-{i}" if i > 1 else name for i in range(1, 10_000))
                path = next(path for one in free if not (path := place / f"{one}.json").exists())
                result = result.model_copy(update={"name": path.stem})
                _write(path, result)
        except (OSError, NotImplementedError) as error:  # the latter: the file system has no locks
            self.say(
                f"{printable(str(place))} cannot be written ({_why(error)}): this bench is not in the history. Set"
                " DYNOTUNE_CACHE to a folder that can be written."
            )
            return result, None
        return result, path

    def paths(self) -> list[Path]:
        """Of all results, the newest first."""
        return sorted(self.folder.glob("*/*/*.json"), key=lambda path: (path.stem, str(path)), reverse=True)

    def newest(self, machine: Machine, work: str, definitions: int, most: int) -> Iterator[Result]:
        """The newest of one machine and kind of work, at most so many. What is damaged is said and passed over."""
        place = self.place(machine, work, definitions)
        for path in sorted(place.glob("*.json"), key=lambda path: path.stem, reverse=True)[:most]:
            if (result := self.read(path)) is not None:
                yield result

    def read(self, path: Path) -> Result | None:
        """None where the file is damaged or gone, which is said."""
        try:
            return Result.read(path)
        except DataError as error:
            self.say(f"note: passed over: {printable(str(error), 400)}")
            return None

    def find(self, name: str) -> tuple[Result, Path]:
        """A result by the name of its file or its bench's folder, or in the history, of which beginning, end or label is
        enough where it is one. A folder that is no bench's hides none.

        A file that somebody copied bears the mark of a withdrawal that the history knows. Raises `DataError`.
        """
        path = Path(name)
        other_folder = path.is_dir() and not (path / IN_FOLDER).is_file()
        if other_folder and (os.sep in name or not _slug(name) or not self._matching(name)):
            raise DataError(
                f"{printable(name)} is a folder without a {IN_FOLDER} of a bench, and no result that was kept has that name."
            )
        if path.is_dir() and not other_folder:
            path /= IN_FOLDER
            name = str(path)
        if not other_folder and (path.suffix == ".json" or os.sep in name or path.is_file()):
            result = Result.read(path)
            if result.withdrawn is None:
                known = (one.withdrawn for _, one in self._kept(result) if one.withdrawn is not None)
                result = result.model_copy(update={"withdrawn": next(known, None)})
            return result, path
        found = self._named(name)
        return Result.read(found), found

    def _kept(self, result: Result) -> Iterator[tuple[Path, Result]]:
        """Of a result that somebody copied what the history holds of it. Another machine's may have the same name."""
        same = (result.date, result.machine, result.work)
        for path in (each for each in self.paths() if each.stem == result.name):
            if (one := self.read(path)) is not None and (one.date, one.machine, one.work) == same:
                yield path, one

    def _matching(self, name: str) -> list[Path]:
        paths = self.paths()
        found = [path for path in paths if path.stem == name]
        found = found or [path for path in paths if path.stem.startswith(name) or path.stem.endswith(name)]
        return found or [path for path in paths if _slug(name) and f"-{_slug(name)}-" in f"{path.stem}-"]

    def _named(self, name: str) -> Path:
        found = self._matching(name)
        if len(found) == 1:
            return found[0]
        if not found:
            from dynotune.config.checking.problems import did_you_mean

            hint = did_you_mean(name, [path.stem for path in self.paths()])
            raise DataError(
                f"there is no result `{printable(name, 100)}`.{hint} `dynotune bench list` names those that were kept; a"
                " file is named with its ending, .json."
            )
        shown = ", ".join(path.stem for path in found[:5]) + (", ..." if len(found) > 5 else "")
        raise DataError(f"`{printable(name, 100)}` may be any of {len(found)} results: {shown}. Name more of it.")

    def withdraw(self, name: str, why: str, corrected_by: str = "") -> tuple[Result, Path]:
        """Mark a result as wrong; it stays. corrected_by: a result of the history or a file, that must be there.

        Of a file or folder what the history holds of it is marked, too, and before it: effects are made of that. Raises
        `DataError`.
        """
        if not why.strip():
            raise DataError("say why it is withdrawn: `--why 'its tokens counted padding'`.")
        result, path = self.find(name)
        correction = self.find(corrected_by)[0] if corrected_by else None
        if correction is not None and correction.name == result.name:
            raise DataError(f"{result.name} cannot be its own correction.")
        mark = Withdrawn(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            why=why,
            corrected_by="" if correction is None else correction.name,
        )
        paths = [kept for kept, _ in self._kept(result) if not kept.samefile(path)]
        for i, one in enumerate([*paths, path]):
            try:
                with FileLock(one.parent / ".lock", timeout=LOCK_SECONDS):
                    marked = Result.read(one).model_copy(update={"withdrawn": mark})
                    _write(one, marked)
            except (OSError, NotImplementedError) as error:
                done = (
                    f"it is withdrawn in the history ({printable(str(paths[0]))}) alone"
                    if i
                    else "nothing was withdrawn"
                )
                raise DataError(f"{printable(str(one))} cannot be written ({_why(error)}): {done}.") from error
        return marked, path


def write_result(result: Result, path: Path) -> None:
    """A result as JSON, whole or not at all. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, result)


def _write(path: Path, result: Result) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(result.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _why(error: Exception) -> str:
    if isinstance(error, Timeout):
        return "another process holds its lock"
    return str(getattr(error, "strerror", None) or error)


def _on_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
