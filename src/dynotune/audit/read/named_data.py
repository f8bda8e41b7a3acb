"""Data files of a project that its own jobs train on: read without being asked for, a part of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import names_data
from dynotune.audit.read.data import read_data
from dynotune.audit.regular import leaves
from dynotune.data.read.readers import data_suffix

MOST_FILES = 8
ROWS, SECONDS = 5_000, 2.0
"""How much of each is read."""

SIZE = 4 << 20
"""Bytes of each that are read, decompressed: a file may be made to take long."""


def a_part_of(path: Path, tokenizer: str | None = None, job: Job | None = None) -> DataFacts:
    """As `read_data` reads it, within the limits for what nobody asked for. Raises `DataError`."""
    return read_data(path, tokenizer, job, rows=ROWS, seconds=SECONDS, size=SIZE)


def named_files(root: Path, jobs: Sequence[Job], given: Sequence[Path]) -> list[Path]:
    """Files below `root` that a job names and trains on as they are. given: those that are read anyhow."""
    found: dict[Path, None] = {}
    for job in jobs:
        named = job.get("dataset_name")
        if (
            not isinstance(named, str)
            or not _trains_on_all(job)
            or any(names_data(job, one.as_posix()) for one in given)
        ):
            continue
        there = next(_files(root, job, named), None)
        if there is not None:
            found.setdefault(there)
    return list(found)[:MOST_FILES]


def _trains_on_all(job: Job) -> bool:
    """On every row, as it stands in the file: no part of a split (`train[:1000]`), and no rows of the script's."""
    listed = job.get("datasets")
    splits = [one.get("split") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return not job.makes_rows and not any("[" in str(split) for split in (job.get("dataset_train_split"), *splits))


def _files(root: Path, job: Job, named: str) -> Iterator[Path]:
    """From where somebody would start the job: the project's folder, or that of one of its files."""
    folders = dict.fromkeys([root, *((root / file).parent for file in job.files)])
    for path in (folder / named for folder in folders):
        try:
            if path.is_file() and not leaves(path, root) and _is_quick(path):
                yield path
        except (OSError, ValueError):  # a name that no file can have
            continue


def _is_quick(path: Path) -> bool:
    """Whether its first rows are known without reading all of it, or all of it is little. Of Parquet and Arrow it is the
    file that says how much a row takes."""
    suffix = data_suffix(path)
    if suffix == ".json":
        return path.suffix == ".json" and path.stat().st_size <= SIZE
    return suffix in (".jsonl", ".ndjson", ".csv", ".tsv")
