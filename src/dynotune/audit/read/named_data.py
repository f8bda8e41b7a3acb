"""Data files of a project that its own jobs train on: read without being asked for, a part of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import names_data
from dynotune.audit.regular import leaves
from dynotune.data.read.readers import data_suffix

MOST_FILES = 8
ROWS, SECONDS = 5_000, 2.0
"""How much of each is read."""

LARGEST = 64 << 20
"""Bytes of a file that must be read whole before its first row is known."""


def named_files(root: Path, jobs: Sequence[Job], given: Sequence[Path]) -> list[Path]:
    """Files below `root` that a job names and trains on as they are. given: those that are read anyhow."""
    found: dict[Path, None] = {}
    for job in jobs:
        named = job.get("dataset_name")
        if job.makes_rows or not isinstance(named, str) or any(names_data(job, one.as_posix()) for one in given):
            continue
        there = next(_files(root, job, named), None)
        if there is not None:
            found.setdefault(there)
    return list(found)[:MOST_FILES]


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
    """Whether its first rows are known without reading all of it, or all of it is little."""
    suffix = data_suffix(path)
    if suffix == ".json":
        return path.suffix == ".json" and path.stat().st_size <= LARGEST
    return suffix is not None
