"""Which scripts of a project write the rows that a program loads: a step before it, which no import leads to."""

import posixpath
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script

_LOADS = ("load_from_disk", "read_parquet", "from_parquet", "read_json", "from_json")
_WRITES = ("save_to_disk", "to_parquet", "to_json")


def writers_of(program: Sequence[Script], project: Project) -> list[Script]:
    """Other scripts that write a folder or a file by the name by which one of these loads it, and no other: what of several
    is loaded, nobody can tell here."""
    names = {path for script in program for path in _loaded(script)}
    own = {script.file for script in program}
    if not names:
        return []
    written = {one.file: one.calls_of(*_WRITES) for one in project.scripts if one.file not in own}
    known = {file: set(_paths(calls)) for file, calls in written.items()}
    return [
        one
        for one in project.scripts
        if known.get(one.file) and known[one.file] <= names and len(known[one.file]) == len(written[one.file])
    ]


def _loaded(script: Script) -> Iterator[str]:
    yield from _paths(script.calls_of(*_LOADS))
    for call in script.calls_of("load_dataset"):
        given = call.arguments.get("data_files")
        files = given.value if given is not None and given.is_known else None
        for one in files.values() if isinstance(files, dict) else files if isinstance(files, list) else [files]:
            if isinstance(one, str) and one:
                yield posixpath.normpath(one)


def _paths(calls: Sequence[Call]) -> Iterator[str]:
    for call in calls:
        for name in ("0", "dataset_path", "path_or_buf", "path"):
            given = call.arguments.get(name)
            if given is not None and isinstance(given.value, str) and given.value and not given.others:
                yield posixpath.normpath(given.value)
                break
