"""Everything that was read for one audit."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.imports import Imports
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.launch import Allocation, Launch
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class NotRead:
    """A file, or a part of one, that could not be read; or something that was not looked at."""

    place: Place
    why: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A package that a file of the project asks for."""

    name: str
    """As registries compare names: small letters, one dash."""

    operator: str
    """`==`, `>=`, ...; empty: any version."""

    version: str
    place: Place
    extras: tuple[str, ...] = ()
    """In brackets behind the name: `axolotl[flash-attn]`."""


@dataclass(frozen=True, slots=True)
class RowsOfBoth:
    """Rows that a file for evaluation shares with one for training."""

    test: Place
    """The first of them in each."""

    train: Place
    shared: int
    of: int
    """Rows for evaluation that were read."""


@dataclass(frozen=True, slots=True)
class Project:
    root: str
    """The folder that places are relative to."""

    jobs: Sequence[Job] = ()
    scripts: Sequence[Script] = ()
    launches: Sequence[Launch] = ()
    told: Sequence[Launch] = ()
    """Commands of documents, images and services that start what another command starts, too: with them no job is made."""

    allocations: Sequence[Allocation] = ()
    configs: Sequence[ConfigFile] = ()
    data: Sequence[DataFacts] = ()
    runs: Sequence[RunFacts] = ()
    environment: Environment | None = None
    profile: Any = None
    """A record of `dynotune profile`, where a command was given."""

    asked: Sequence[Asked] = ()
    """Packages that its requirements, images and installing commands name."""

    not_read: Sequence[NotRead] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """The source of every file that was read, by its place's name: for suppressions, snippets and edits."""

    documents: Mapping[str, str] = field(default_factory=dict)
    """Markdown files, which may name what nothing else names."""

    notes: Mapping[str, str] = field(default_factory=dict)
    """Text cells of notebooks, by the notebook's file."""

    written: Mapping[str, Place] = field(default_factory=dict)
    """Files that are in `texts` and not in the folder, since a notebook or a shell script writes them: where their first
    line stands."""

    columns: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Of data files that configurations name, by the file: each column of the first rows, with the keys of its first entry
    where it has lists of mappings."""

    first_rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Of data files in the project that its files name, by the file. What they say is shown to nobody: for marks in them."""

    templates: Mapping[str, str] = field(default_factory=dict)
    """Chat templates in files of their own."""

    of_both: Sequence[RowsOfBoth] = ()
    """Of files that are named beside each other for training and for evaluation."""

    imports: Imports = field(init=False, repr=False, compare=False)
    """Between its scripts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "imports", Imports(self.scripts))

    def data_of(self, job: Job) -> DataFacts | None:
        """The data that a job trains on, where it was read: named by the job, or the only one beside the only job."""
        found = next((one for one in self.data if names_data(job, one.place.file)), None)
        return found or (self.data[0] if len(self.data) == len(self.jobs) == 1 else None)

    def pinned(self, package: str) -> tuple[int, ...] | None:
        """The numbers of the one version of a package that the project asks for; None: none, several, or a range."""
        asked = {one.version for one in self.asked if one.name == package and one.operator in ("==", "===")}
        found = re.match(r"\d+(?:\.\d+)*", asked.pop()) if len(asked) == 1 else None
        return tuple(int(part) for part in found[0].split(".")) if found is not None else None

    def jobs_of(self, data: DataFacts) -> list[Job]:
        """The jobs that train on this data."""
        return [job for job in self.jobs if self.data_of(job) is data]


_HELD_OUT = re.compile(r"(?:test|val|valid\w*|eval\w*|dev)(?![a-z])", re.IGNORECASE)


def names_data(job: Job, file: str) -> bool:
    """Whether a job's data set is this file or folder, or a folder with this file of its training split, as far as their
    paths tell."""
    named = data_named_by(job)
    if not named or not file:
        return False
    parts, there = (PurePosixPath(name.replace("\\", "/")).parts for name in (named, file))
    within = bool(parts) and there[-len(parts) - 1 : -1] == parts and not _HELD_OUT.match(there[-1])
    return there[-len(parts) :] == parts or parts[-len(there) :] == there or within


BUILDERS = frozenset({"json", "csv", "parquet", "arrow", "text"})
"""What `datasets.load_dataset` is asked for where `data_files` has the data."""


def data_named_by(job: Job) -> str:
    """The data set of a job that trains on one, as it names it: a path or a hub id, the file of `path: json` with one file
    in `data_files`; empty where it names none, or where its files cannot be told."""
    named, listed = job.get("dataset_name"), job.get("datasets")
    first = listed[0] if isinstance(listed, (list, tuple)) and listed else {}
    if named is None and isinstance(first, Mapping):
        named = first.get("path")
    if isinstance(named, str) and named in BUILDERS:
        files = first.get("data_files") if isinstance(first, Mapping) else None
        named = files[0] if isinstance(files, (list, tuple)) and len(files) == 1 else files
    return named if isinstance(named, str) else ""
