"""A folder, or a few named files, as a `Project`: what each file is is decided by what it holds."""

import contextlib
import functools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.launch import SHELL, Allocation, Launch
from dynotune.audit.facts.project import NotRead, Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.place import Place
from dynotune.audit.read.asked_packages import asked_packages
from dynotune.audit.read.batches_of_deepspeed import with_batches_of_deepspeed
from dynotune.audit.read.columns import columns_named
from dynotune.audit.read.configs import PERHAPS_JSON, SUFFIXES, NotReadableError, job_of, read_config
from dynotune.audit.read.exported import exported_by_all
from dynotune.audit.read.extended import leniently, own_fields, reads_configurations
from dynotune.audit.read.first_rows import first_rows
from dynotune.audit.read.launched import Sources, each_of, given_by, jobs_of_launch
from dynotune.audit.read.launchers.distribution import distribution_of_config
from dynotune.audit.read.python.jobs import jobs_of
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.recognised import takes
from dynotune.audit.read.python.value import Value
from dynotune.audit.read.rows_of_both import rows_of_both
from dynotune.audit.read.written_files import written_by_cells, written_by_shell
from dynotune.audit.regular import NotRegularError, leaves, start_of
from dynotune.audit.schema import Schemas
from dynotune.audit.schema.beside import sources_in, versions_asked

MAX_BYTES = 1 << 20
"""Of a file that is read. Configurations and scripts are shorter; data and models are longer."""

MAX_FILES = 5_000
MOST_FOLLOWED = 12
"""Commands that start one script, up to which it is gone through with the flags of each."""

MAX_NAMED = 20
"""So many files that were left out are named, the rest are counted."""

_SKIPPED = (
    ".git .hg .svn __pycache__ .mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .tox .nox node_modules"
    " site-packages .idea .vscode wandb mlruns .eggs"
)
SKIPPED_FOLDERS = frozenset(_SKIPPED.split())
_SHELL = SHELL | {".mk"}
_SHELL_NAMES = frozenset({"makefile", "gnumakefile", "justfile"})
_DOCUMENTS = frozenset({".md"})
_TEMPLATES = frozenset({".jinja", ".jinja2", ".j2"})
_PYTHON = frozenset({".py", ".ipynb"})
_LIGHTNING = "Lightning takes the steps of this trainer: its settings are not read, and no rule was asked about them"
_OF_OTHERS = re.compile(r"change|history|news|todo|contribut|(?:^|/)docs?/", re.IGNORECASE)
"""Documents whose commands are of another time, or of another project."""

_OUTSIDE = "it is a link to outside of the project: name it by itself to have it read"


@dataclass
class _Found:
    """What has been read so far."""

    scripts: dict[str, Script] = field(default_factory=dict)
    configs: dict[str, ConfigFile] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    written: dict[str, Place] = field(default_factory=dict)
    not_read: list[NotRead] = field(default_factory=list)
    modules: Modules = field(default_factory=Modules)


def read_project(root: Path, *, only: Sequence[Path] = (), whole: bool = False, schemas: Schemas) -> Project:
    """Read a folder whole, or only the named files of it; with `whole` both. Nothing is run, and no link is followed out
    of it but one that is named itself.

    Folders of environments and of version control, files above `MAX_BYTES` and binary ones are left out; all but version
    control and caches are named in `not_read`.
    """
    found = _Found()
    paths = [] if only and not whole else list(_files(root, found))
    there = {_place(path, root) for path in paths}
    for path in paths:
        _read(path, root, found)
    for path in only:
        place = _place(path, root)
        if place.file.startswith("../"):
            found.not_read.append(NotRead(place, "it lies outside of the project: audit it by itself"))
        elif place not in there:
            found.not_read = [one for one in found.not_read if one.place != place]
            _read(path, root, found)
    _add_written(root, found)
    by_python = _reader("launchers.of_python", "commands_of_python")
    found.launches += by_python(root, found.scripts, found.modules, found.configs)
    found.launches += _reader("launchers.of_estimators", "commands_of_estimators")(
        root, found.scripts, found.modules, found.configs
    )
    asked = asked_packages(root, found.texts, found.documents)
    told, again = _told(root, found)
    found.launches += told
    schemas = schemas.beside(sources_in(root), versions_asked(root, {**found.texts, **found.documents}))
    jobs = _jobs(found, schemas)
    return Project(
        str(root),
        jobs=jobs,
        scripts=list(found.scripts.values()),
        launches=found.launches,
        told=again,
        allocations=found.allocations,
        configs=list(found.configs.values()),
        asked=asked,
        not_read=_shortened(found.not_read),
        texts=found.texts,
        documents=found.documents,
        notes=found.notes,
        written=found.written,
        columns=columns_named(root, list(found.configs.values()), jobs),
        first_rows=first_rows(root, found.texts),
        templates=found.templates,
        of_both=rows_of_both(root, list(found.configs.values()), list(found.scripts.values()), found.launches),
    )


def _told(root: Path, found: _Found) -> tuple[list[Launch], list[Launch]]:
    """Commands of images, services and documents: those that start what no launcher of the project does, and the rest."""
    read_launches = _reader("launchers", "read_launches")
    of_document, of_image = (_reader("launchers.elsewhere", f"commands_of_{kind}") for kind in ("document", "image"))
    texts = {file: of_image(text) for file, text in found.texts.items() if "Dockerfile" in file}
    is_service, of_service = (
        _reader("launchers.elsewhere", name) for name in ("is_of_services", "commands_of_services")
    )
    of_built = _reader("launchers.elsewhere", "commands_of_built")
    images = dict(texts)
    for file, text in found.texts.items():
        if is_service(file, text):
            built, taken = of_built(text, images)
            of_own = of_service(text, _variables_beside(root / file, text)).split("\n")
            texts[file] = "\n".join(one or other for one, other in zip(of_own, built.split("\n"), strict=True))
            texts = {name: one for name, one in texts.items() if name not in taken}
    of_notebook, mark = _reader("launchers.elsewhere", "commands_of_notebook"), _reader("python.source", "MARK")
    texts |= {file: of_notebook(found.texts[file], mark) for file in found.texts if file.endswith(".ipynb")}
    texts |= {file: of_document(text) for file, text in found.documents.items() if not _OF_OTHERS.search(file)}
    told: list[Launch] = []
    again: list[Launch] = []
    for file, text in texts.items():
        started = {launch.script or launch.program for launch in (*found.launches, *told) if launch.file != file}
        own = (
            [one for one in read_launches(root / file, text, root, found.written.keys()) if one.script or one.configs]
            if text.strip()
            else []
        )
        told += [one for one in own if (one.script or one.program) not in started]
        again += [one for one in own if (one.script or one.program) in started]
    return told, again


_ENV_FILE = re.compile(r"^\s*env_file:\s*\[?\s*(?:-\s*)?[\"']?(?:\./)?([\w./-]+)", re.MULTILINE)


def _variables_beside(path: Path, text: str) -> dict[str, str]:
    """Files of variables in the folder of a Compose file, as far as it names them in the key's own line."""
    names = [name for name in _ENV_FILE.findall(text) if ".." not in name and not name.startswith("/")]
    there = [(name, path.parent / name) for name in names]
    return {
        name: one.read_text(encoding="utf-8", errors="replace")
        for name, one in there
        if one.is_file() and not one.is_symlink() and one.stat().st_size < _MOST_OF_VARIABLES
    }


_MOST_OF_VARIABLES = 64_000


def _jobs(found: _Found, schemas: Schemas) -> list[Job]:
    """Of commands first; then of configurations and scripts that no command names."""
    schemas = schemas.with_fields(own_fields(found.scripts))
    own_reader = any(reads_configurations(script) for script in found.scripts.values())
    of_scripts: dict[str, list[Job]] = {}
    often = Counter(launch.script for launch in found.launches)
    started = {
        launch.place: given_by(launch, found.configs, flags=often[launch.script] <= MOST_FOLLOWED)
        for launch in found.launches
    }
    by_script = {
        launch.script: [started[one.place] for one in found.launches if one.script == launch.script]
        for launch in found.launches
    }
    found.modules.exported = exported_by_all(found.launches)
    found.modules.takes = functools.partial(takes, schemas)
    found.modules.started_with = {
        name: with_ for name, (with_, *others) in by_script.items() if with_ and all(one == with_ for one in others)
    }
    found.modules.started_variously = frozenset(
        name for name, every in by_script.items() if any(_of_flags(one) != _of_flags(every[0]) for one in every)
    )
    for name, script in found.scripts.items():
        of_scripts[name] = jobs_of(script, found.scripts, schemas, found.configs, found.modules)
    sources = Sources(found.configs, found.scripts, of_scripts, schemas, found.allocations)
    jobs: list[Job] = []
    texts = {**found.texts, **found.documents}
    for launch in found.launches:
        with_, here = started[launch.place], sources
        if with_ and launch.script in found.scripts and launch.script not in found.modules.started_with:
            modules = found.modules.started(launch.script, with_)
            own = jobs_of(found.scripts[launch.script], found.scripts, schemas, found.configs, modules)
            here = replace(sources, jobs={**of_scripts, launch.script: own})
        if often[launch.script] <= MOST_FOLLOWED:
            here = replace(here, followed=launch.script)
        jobs += [job for one in each_of(launch, found.configs, texts) for job in jobs_of_launch(one, here)]
    covered = {file for job in jobs for file in job.files}
    read_by_scripts = {file for own in of_scripts.values() for job in own for file in job.files}
    for name, config in found.configs.items():
        if name in read_by_scripts:
            continue  # the script makes its job
        if name not in covered and (job := job_of(config, schemas)) is not None:
            jobs.append(distribution_of_config(leniently(job) if own_reader else job, found.configs))
    for name, own in of_scripts.items():
        if name not in covered:
            jobs += own
    return [with_batches_of_deepspeed(job, found.configs) for job in jobs]


def _of_flags(with_: Mapping[str, Value]) -> Mapping[str, Value]:
    """Without the variables of the environment."""
    return {name: one for name, one in with_.items() if not name.startswith("$")}


def _is_lightning(call: Call) -> bool:
    return call.name.rpartition(".")[2] == "Trainer" and call.name.startswith(("lightning.", "pytorch_lightning."))


def _reader(module: str, name: str) -> Any:
    try:
        return getattr(import_module(f"dynotune.audit.read.{module}"), name, None)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("dynotune.audit."):
            raise
        return None


def _files(root: Path, found: _Found) -> Iterator[Path]:
    count = 0
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        kept = []
        for name in sorted(folders):
            if (here / name / "pyvenv.cfg").is_file() or (here / name / "conda-meta").is_dir():
                found.not_read.append(NotRead(_place(here / name, root), "it is an environment of Python"))
            elif (here / name).is_symlink() and leaves(here / name, root):
                found.not_read.append(NotRead(_place(here / name, root), _OUTSIDE))
            elif name not in SKIPPED_FOLDERS:
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            path = here / name
            if path.is_symlink() and leaves(path, root):
                if _is_named_as_ours(path):
                    found.not_read.append(NotRead(_place(path, root), _OUTSIDE))
                continue
            if not _is_ours(path):
                continue
            count += 1
            if count > MAX_FILES:
                why = f"there are more than {MAX_FILES:,} files to read: audit a part of it"
                found.not_read.append(NotRead(_place(here, root), why))
                return
            yield path


def _is_named_as_ours(path: Path) -> bool:
    return path.suffix.lower() in _PYTHON | SUFFIXES | _SHELL or path.name.lower() in _SHELL_NAMES


def _is_document(path: Path) -> bool:
    plain = path.suffix.lower() in ("", ".txt", ".rst") and path.name.lower().startswith("readme")
    return plain or path.suffix.lower() in _DOCUMENTS


def _is_ours(path: Path) -> bool:
    if _is_named_as_ours(path) or _is_document(path) or path.suffix.lower() in _TEMPLATES:
        return True
    if path.suffix and path.suffix.lower() not in PERHAPS_JSON:
        return False
    try:
        start = start_of(path, 80)
    except OSError:
        return False
    if path.suffix:
        return start.lstrip().startswith(b"{")
    first = start.partition(b"\n")[0]
    return first.startswith(b"#!") and b"sh" in first


def _place(path: Path, root: Path) -> Place:
    return Place(Path(os.path.relpath(path, root)).as_posix())


def _read(path: Path, root: Path, found: _Found) -> None:
    place = _place(path, root)
    text = _text(path, place, found)
    if text is None:
        return
    if _is_document(path):
        found.documents[place.file] = text
        return
    if path.suffix.lower() in _TEMPLATES:
        found.templates[place.file] = text
        return
    found.texts[place.file] = text
    try:
        _parse(path, text, root, place.file, found)
    except NotReadableError as error:
        found.not_read.append(NotRead(error.place, error.why))


def _parse(path: Path, text: str, root: Path, name: str, found: _Found) -> None:
    suffix = path.suffix.lower()
    if suffix in _PYTHON:
        read_script = _reader("python", "read_script")
        if read_script is not None:
            found.scripts[name] = read_script(path, text, root, found.modules, found.configs)
            found.not_read += [NotRead(Place(name), why) for why in found.scripts[name].unread]
            found.not_read += [
                NotRead(call.place, _LIGHTNING) for call in found.scripts[name].calls if _is_lightning(call)
            ]
            if suffix == ".ipynb":
                found.texts[name] = found.scripts[name].source  # its code
                found.notes[name] = _reader("python", "notes")(text)
    elif suffix in _SHELL or path.name.lower() in _SHELL_NAMES or text.startswith("#!"):
        read_launches = _reader("launchers", "read_launches")
        if read_launches is not None:
            found.launches += read_launches(path, text, root, {one.name for one in written_by_shell(name, text)})
        read_allocation = _reader("launchers.allocation", "read_allocation") if "#SBATCH" in text else None
        if read_allocation is not None and (allocation := read_allocation(path, text, root)) is not None:
            found.allocations.append(allocation)
    else:
        config = read_config(root / name, text, root)
        if config is not None:
            found.configs[name] = config


def _add_written(root: Path, found: _Found) -> None:
    """Files that notebooks and shell scripts write, where none of the name lies there."""
    every = [
        one
        for file, text in list(found.texts.items())
        for one in (written_by_cells(file, text) if file.endswith(".ipynb") else written_by_shell(file, text))
        if file.endswith(".ipynb") or ("<<" in text and not file.endswith(tuple(SUFFIXES | _PYTHON)))
    ]
    often = Counter(one.name for one in every)
    for one in every:
        known = one.name in found.texts or (root / one.name).exists()
        known = known or often[one.name] > 1  # which of them holds when it is used, is not told
        if known or not _is_named_as_ours(Path(one.name)) or one.name.endswith(".ipynb"):
            continue
        found.written[one.name] = one.home
        found.texts[one.name] = one.text
        with contextlib.suppress(NotReadableError):
            _parse(root / one.name, one.text, root, one.name, found)


def _text(path: Path, place: Place, found: _Found) -> str | None:
    try:
        content = start_of(path, MAX_BYTES + 1)
    except NotRegularError as error:
        found.not_read.append(NotRead(place, error.strerror or ""))
        return None
    except OSError as error:
        found.not_read.append(NotRead(place, f"it cannot be read: {error.strerror or error}"))
        return None
    if len(content) > MAX_BYTES:
        found.not_read.append(
            NotRead(place, f"it is larger than {MAX_BYTES:,} bytes, which no configuration or script is")
        )
        return None
    decoded = _reader("python", "decoded")
    if path.suffix.lower() in _PYTHON and decoded is not None:
        source: str | None = decoded(content)  # which may name an encoding of its own
        if source is None:
            found.not_read.append(NotRead(place, "it is binary"))
        return source
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            return content.decode("utf-16")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found.not_read.append(NotRead(place, f"it is not UTF-8 text ({error.reason} at byte {error.start:,})"))
        return None
    if "\0" in text:
        found.not_read.append(NotRead(place, "it is binary"))
        return None
    return text


def _shortened(not_read: list[NotRead]) -> list[NotRead]:
    if len(not_read) <= MAX_NAMED:
        return not_read
    rest = len(not_read) - MAX_NAMED
    return [*not_read[:MAX_NAMED], NotRead(Place(""), f"{rest:,} more files or folders were left out for such reasons")]
