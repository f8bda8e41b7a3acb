"""A whole audit: read what was asked for, ask the rules, take out what somebody has answered for."""

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynotune.audit.cells import where_written, with_cells
from dynotune.audit.cost import Cost, cost_of, in_order
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import NotRead, Project, names_data
from dynotune.audit.finding import Finding, NotChecked, Severity, severity
from dynotune.audit.fix.refused import refused
from dynotune.audit.judging.baseline import Baseline
from dynotune.audit.judging.choice import chosen, on_words
from dynotune.audit.judging.grouped import grouped
from dynotune.audit.judging.remarks import on_suppressions
from dynotune.audit.judging.rules_over import judge
from dynotune.audit.judging.suppression import Suppression, suppressions
from dynotune.audit.place import Place
from dynotune.audit.registry import rules
from dynotune.audit.secret_values import Secrets
from dynotune.errors import ConfigError, DataError
from dynotune.printable import printable

if TYPE_CHECKING:
    from dynotune.profile.records.record import Record

CLEAN, FINDINGS, NOT_CHECKED = 0, 1, 2
"""Exit codes: nothing at or above the level; something; no rule could be checked, or not a file that was named."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is audited, and by which rules."""

    project: Path | None = None
    """A folder, read whole."""

    files: Sequence[Path] = ()
    """Configurations, scripts and launchers by name."""

    environment: bool = False
    data: Sequence[Path] = ()
    tokenizer: str | None = None
    runs: Sequence[Path] = ()
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Source trees of trainers by name, to check keys against."""

    profile: "Record | None" = None
    """What was seen of a command that was run."""

    not_seen: str = ""
    """Why nothing was seen of it, where that is so."""

    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    baseline: Baseline | None = None
    today: datetime.date = field(default_factory=datetime.date.today)


@dataclass(frozen=True, slots=True)
class Suppressed:
    finding: Finding
    by: Suppression


@dataclass(frozen=True, slots=True)
class Result:
    findings: Sequence[Finding]
    """What is left to do, most at stake first."""

    suppressed: Sequence[Suppressed]
    known: Sequence[Finding]
    """In the baseline."""

    passed: Sequence[str]
    """Codes of rules that were checked and found nothing."""

    not_checked: Sequence[NotChecked]
    remarks: Sequence[tuple[Place, str]]
    """On suppressions and the baseline: sentences."""

    project: Project
    cost: Cost
    checked: int
    """How many rules were asked about something and could answer."""

    named: Sequence[str] = ()
    """Files that were named, as places call them."""

    refused: Sequence[Finding] = ()
    """Findings with a safe change that `--fix` does not make."""

    single: Sequence[Finding] = ()
    """`findings` before those of one cause were put together: what a baseline knows."""

    def exit_code(self, level: Severity) -> int:
        if any(severity(finding.stake) >= level for finding in self.findings):
            return FINDINGS
        lost = {one.place.file for one in self.project.not_read} & set(self.named)
        return NOT_CHECKED if lost or not self.checked else CLEAN


def audit(request: Request) -> Result:
    """Read and judge. Nothing that is audited is run. Raises `ConfigError` for what was asked for wrongly."""
    wanted = chosen(rules(), request.select, request.ignore)
    project, named = read(request)
    project = Secrets(project.texts).hide_in_project(project)
    judged = judge(project, wanted)
    told = list(suppressions(project, request.today))
    open_, suppressed, used = [], [], set()
    for finding in judged.findings:
        by = next((one for one in told if one.covers(finding)), None)
        if by is None:
            open_.append(finding)
        else:
            used.add(by.place)
            suppressed.append(Suppressed(finding, by))
    remarks = [(Place(""), said) for said in on_words(request.select, "--select")]
    remarks += [(Place(""), said) for said in on_words(request.ignore, "--ignore")]
    remarks += on_suppressions(told, used, set(wanted))
    known: list[Finding] = []
    if request.baseline is not None:
        split = request.baseline.split(open_, project.texts, project.root)
        open_, known = list(split.new), list(split.known)
        remarks += [(Place(""), said) for said in split.remarks()]
    cost = cost_of(project)
    unanswered = {one.code for one in judged.not_checked} - {one.code for one in judged.findings}
    findings = [
        with_cells(where_written(one, project.written), project.texts) for one in grouped(in_order(open_, cost))
    ]
    return Result(
        findings=findings,
        suppressed=tuple(suppressed),
        known=tuple(known),
        passed=judged.passed,
        not_checked=judged.not_checked,
        remarks=tuple(remarks),
        project=project,
        cost=cost,
        checked=len(set(wanted) - unanswered),
        named=named,
        refused=refused(project, findings),
        single=tuple(open_),
    )


def read(request: Request) -> tuple[Project, tuple[str, ...]]:
    """Everything that was asked for, and how places call the files that were named. Raises `ConfigError`."""
    for path in (*request.files, *request.data, *request.runs, *([request.project] if request.project else [])):
        if not path.exists():
            raise ConfigError(f"{printable(str(path))} does not exist.")
    if request.project is not None and not request.project.is_dir():
        shown = printable(str(request.project))
        raise ConfigError(
            f"`--project` takes a folder, and {shown} is none. Name a file with `--config` or `--script`."
        )
    root = request.project or _common(request.files)
    named = tuple(Path(os.path.relpath(path, root)).as_posix() for path in request.files)
    project = Project(str(root))
    if request.project is not None or request.files:
        from dynotune.audit.read.project import read_project
        from dynotune.audit.schema import Schemas

        project = read_project(
            root,
            only=[root / name for name in named],
            whole=request.project is not None,
            schemas=Schemas.of(request.sources),
        )
    if request.environment:
        from dynotune.audit.read.environment import read_environment

        project = replace(project, environment=read_environment(try_packages=True))
    project = _with_data(project, request, root)
    if request.runs:
        from dynotune.audit.read.run import read_run

        project = replace(project, runs=[read_run(folder) for folder in request.runs])
    if request.not_seen:
        lost = NotRead(Place(""), request.not_seen)
        return replace(project, not_read=[*project.not_read, lost]), (*named, "")
    return replace(project, profile=request.profile), named


def _with_data(project: Project, request: Request, root: Path) -> Project:
    """With the data that was asked for, and with a part of what jobs name: those of a whole project in it, those of files
    that were named anywhere here, where no other data is given for them."""
    from dynotune.audit.read.named_data import NamedData, a_part_of, named_files

    named, whole = NamedData(()), request.project is not None
    if whole or not request.data:
        named = named_files(root, project.jobs, request.data, anywhere=not whole)
    project = replace(project, not_read=[*project.not_read, *named.left])
    if not request.data and not named.files:
        return project
    from dynotune.audit.read.data import read_data

    data, not_read = [], list(project.not_read)
    for path in (*request.data, *named.files):
        job, why = _read_for(path, project.jobs)
        try:
            read_rows = read_data if path in request.data else a_part_of
            facts = read_rows(path, request.tokenizer, job)
            inside = Place(Path(os.path.relpath(path, root)).as_posix())
            data.append(facts if path in request.data else replace(facts, place=inside))
        except DataError as error:
            if path in request.data:
                raise
            place = Place(Path(os.path.relpath(path, root)).as_posix())
            first_line = str(error).splitlines()[0]
            not_read.append(NotRead(place, f"its rows could not be used: {printable(first_line, 200)}"))
            continue
        not_read += [NotRead(data[-1].place, why)] if why else []
    return replace(project, data=data, not_read=not_read)


_MASKS = ("assistant_only_loss", "completion_only_loss", "dataset_text_field")


def _read_for(path: Path, jobs: Sequence[Job]) -> tuple[Job | None, str]:
    """The job whose masks data is read with: of those that name it, or the only one; and why there is none."""
    named = [job for job in jobs if names_data(job, path.as_posix())] or (list(jobs) if len(jobs) == 1 else [])
    if len({(job.method, *(str(job.get(name)) for name in _MASKS)) for job in named}) == 1:
        return named[0], ""
    if not jobs:
        return None, ""
    whose = f"{len(named)} jobs train on it with different masks" if named else f"none of {len(jobs)} jobs names it"
    return None, f"which of its tokens carry loss was not looked at: {whose}"


def _common(files: Sequence[Path]) -> Path:
    """The folder that places are relative to: here, where all lie below it."""
    here = Path.cwd()
    paths = [path.resolve() for path in files]
    if all(path.is_relative_to(here.resolve()) for path in paths):
        return Path()
    return Path(os.path.commonpath([path.parent for path in paths]))
