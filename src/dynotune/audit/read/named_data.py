"""Data files that jobs train on: read without being asked for, a part of them.

Of a project, files in it. Of configurations and scripts that are named, whatever local file they name: it is the user's own,
and what of it is not read is said.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import NotRead, data_named_by, names_data
from dynotune.audit.place import Place
from dynotune.audit.read.data import read_data
from dynotune.audit.regular import NotRegularError, leaves, start_of
from dynotune.data.read.readers import data_suffix
from dynotune.printable import printable

MOST_FILES = 8
ROWS, SECONDS = 5_000, 2.0
"""How much of each is read."""

MOST_IN_A_FOLDER = 200
"""Entries that are looked at."""

SIZE = 4 << 20
"""Bytes of each that are read, decompressed: a file may be made to take long."""

_LINES = (".jsonl", ".ndjson", ".csv", ".tsv")
_DATA = (*_LINES, ".json", ".parquet", ".arrow")


@dataclass(frozen=True, slots=True)
class NamedData:
    files: Sequence[Path]
    left: Sequence[NotRead] = ()
    """What is named and not read, with the reason."""


def a_part_of(path: Path, tokenizer: str | None = None, job: Job | None = None) -> DataFacts:
    """As `read_data` reads it, within the limits for what nobody asked for; what share that is, is said. Raises
    `DataError`."""
    facts = read_data(path, tokenizer, job, rows=ROWS, seconds=SECONDS, size=SIZE)
    share = _share(path, facts.rows) if facts.sampled else ""
    return replace(facts, said=[*facts.said, share]) if share else facts


def _share(path: Path, rows: int) -> str:
    """How much of a file its first rows are, as a sentence; empty where that cannot be told from its size."""
    if path.suffix not in (".jsonl", ".ndjson"):
        return ""
    try:
        start = start_of(path, SIZE + 1)  # no line, however long, is read beyond what the rows were read from
        size = max(path.stat().st_size, 1)
    except OSError:
        return ""
    end = 0
    for _ in range(rows):
        end = start.find(b"\n", end) + 1
        if not end:
            break
    percent = 100 * min(end or len(start), size) / size
    return f"that is {f'about {percent:.0f}' if percent >= 1 else 'less than 1'} % of the file"


def named_files(root: Path, jobs: Sequence[Job], given: Sequence[Path], *, anywhere: bool = False) -> NamedData:
    """Files that a job names and trains on as they are. given: those that are read anyhow. anywhere: not only below `root`,
    and what is not read is said."""
    found: dict[Path, None] = {}
    left: dict[Path, NotRead] = {}
    for job in jobs:
        named = _file_of(job, root) if anywhere else data_named_by(job)
        if not named or any(names_data(job, one.as_posix()) for one in given):
            continue
        there = next(_there(root, job, named, anywhere), None)
        why = _why_not(job, there)
        if there is not None and not why:
            found.setdefault(there)
        elif anywhere and (there is not None or _is_local(named)):
            file = there or Path(named)
            left.setdefault(file, NotRead(Place(file.as_posix()), f"{printable(job.home.file)} names it, and {why}"))
    few, more = list(found)[:MOST_FILES], list(found)[MOST_FILES:] if anywhere else []
    over = [NotRead(Place(one.as_posix()), f"only {MOST_FILES} data sets are looked at unasked") for one in more]
    return NamedData(few, [*left.values(), *over])


def _why_not(job: Job, there: Path | None) -> str:
    """Why data is left; empty: it is read."""
    if there is None:
        return "there is no such file here: nothing of its rows was checked"
    asks = f"that was not asked for: `--data {printable(str(there))}` reads it"
    if there.is_dir():
        return f"it is a folder, {asks}"
    if not _trains_on_all(job):
        return f"the job trains on a part of it, or on more than it, {asks}"
    return "" if _is_quick(there) else f"it may take long to read, {asks}"


def _is_local(named: str) -> bool:
    """Whether a name that leads to nothing here is a file's all the same, and no hub's."""
    return "://" not in named and (named.startswith((".", "/", "~")) or data_suffix(Path(named)) in _DATA)


def _file_of(job: Job, root: Path) -> str:
    """The name of a job's data, where it may be of a local file."""
    named = data_named_by(job)
    if job.trainer is Trainer.LLAMA_FACTORY:
        named = next(_defined(job, root, named), "") if named else ""
    return named


def _defined(job: Job, root: Path, name: str) -> Iterator[str]:
    """The file that `dataset_info.json` gives a data set of LLaMA-Factory's."""
    folder = job.get("dataset_dir", "data")
    for start in _starts(root, job) if isinstance(folder, str) else ():
        try:
            held: Any = json.loads(start_of(start / folder / "dataset_info.json", SIZE))
        except (OSError, ValueError, RecursionError, NotRegularError):
            continue
        entry = held.get(name) if isinstance(held, dict) else None
        file = entry.get("file_name") if isinstance(entry, dict) else None
        if isinstance(file, str):
            yield (Path(folder) / file).as_posix()


def _starts(root: Path, job: Job) -> list[Path]:
    """From where somebody would start the job: the project's folder, or that of one of its files."""
    return list(dict.fromkeys([root, *((root / file).parent for file in job.files)]))


def _there(root: Path, job: Job, named: str, anywhere: bool) -> Iterator[Path]:
    """Files of that name, and folders where what is left is said."""
    for start in _starts(root, job):
        try:
            path = start / Path(named).expanduser()
            rows = _of_a_folder(path) if path.is_dir() else None
            if rows is not None and (anywhere or not leaves(rows, root)):
                yield rows
            elif (path.is_file() and not leaves(path, root)) or (anywhere and (path.is_file() or path.is_dir())):
                yield path
        except (OSError, ValueError, RuntimeError):  # a name that no file can have
            continue


def _of_a_folder(folder: Path) -> Path | None:
    """The one file of its training split, as `datasets` tells splits by names; None: none, several, or another layout."""
    files = [
        one
        for one in sorted(itertools.islice(folder.iterdir(), MOST_IN_A_FOLDER))
        if data_suffix(one) in _DATA and one.is_file()
    ]
    trained = [one for one in files if re.match(r"train(?:ing)?(?![a-z])", one.name)] or files
    return trained[0] if len(trained) == 1 else None


def _trains_on_all(job: Job) -> bool:
    """On every row, as it stands in the file: no part of a split (`train[:1000]`), no rows of the script's, and no other
    data set beside it."""
    listed = job.get("datasets")
    splits = [one.get("split") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return (
        len(splits) < 2
        and not job.makes_rows
        and not any("[" in str(split) for split in (job.get("dataset_train_split"), *splits))
    )


def _is_quick(path: Path) -> bool:
    """Whether its first rows are known without reading all of it, or all of it is little. Of Parquet and Arrow it is the
    file that says how much a row takes."""
    suffix = data_suffix(path)
    if suffix == ".json":
        return path.suffix == ".json" and path.stat().st_size <= SIZE
    return suffix in _LINES
