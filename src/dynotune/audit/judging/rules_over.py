"""Every chosen rule asked about every subject there is: findings, rules that passed, and what could not be checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import Finding, NotChecked
from dynotune.audit.judging.measured_by import measured_by
from dynotune.audit.judging.watched import asked_since, watched
from dynotune.audit.place import Place
from dynotune.audit.rule import NONE_OF, Rule, Subject
from dynotune.audit.secret_values import Secrets


@dataclass(frozen=True, slots=True)
class Judged:
    findings: Sequence[Finding]
    """With their codes, each once, in the order of rules."""

    passed: Sequence[str]
    """Codes of rules that were asked about something, and have nothing to say."""

    not_checked: Sequence[NotChecked]


def judge(project: Project, rules: Mapping[str, Rule]) -> Judged:
    """Ask all of them."""
    findings: dict[Any, Finding] = {}
    passed: list[str] = []
    missing: dict[Any, NotChecked] = {}
    trails, plain = _trails(project), project
    project = watched(project)
    for code, rule in rules.items():
        subjects = list(_subjects(project, rule.subject))
        if not subjects:
            missing[code, "", None] = NotChecked(NONE_OF[rule.subject], code=code)
            continue
        silent = True
        for subject in subjects:
            for said in rule.check(subject, project):
                silent = False
                if isinstance(said, NotChecked):
                    missing.setdefault((code, said.why, said.place), replace(said, code=code))
                else:
                    # Two jobs may share a file: what is said of one line is said once.
                    also = tuple(one for one in trails.get(said.place, ()) if one not in said.also)
                    told = replace(measured_by(said, plain), code=code, also=(*said.also, *also))
                    findings.setdefault((code, said.place, said.message), told)
        for job in asked_since(project):
            for hole in job.holes:
                silent = False
                missing.setdefault((code, hole.why, hole.place), NotChecked(hole.said, hole.place, code))
        if silent:
            passed.append(code)
    secrets = Secrets(project.texts)
    return Judged(
        tuple(map(secrets.hide_in, findings.values())),
        tuple(passed),
        tuple(replace(one, why=secrets.hide(one.why)) for one in missing.values()),
    )


def _trails(project: Project) -> Mapping[Place, Sequence[Place]]:
    """By the place of a setting in a script or a command: where in configurations its value is written, or the flag whose
    default it is. Who mends it looks there."""
    written = {config.file for config in project.configs}
    found: dict[Place, Sequence[Place]] = {}
    for job in project.jobs:
        for setting in job.settings.values():
            trail = tuple(
                one
                for one in setting.via
                if (one.file in written and one.file != setting.place.file) or (one.key.startswith("-") and one.line)
            )
            if trail:
                found[setting.place] = trail
    return found


def _subjects(project: Project, kind: Subject) -> Iterator[Any]:
    match kind:
        case Subject.JOB:
            yield from project.jobs
        case Subject.SCRIPT:
            yield from _scripts(project)
        case Subject.LAUNCH:
            yield from project.launches
        case Subject.CONFIG:
            yield from project.configs
        case Subject.DATA:
            yield from project.data
        case Subject.RUN:
            yield from project.runs
        case Subject.ENVIRONMENT:
            yield from [project.environment] if project.environment is not None else []
        case Subject.PROFILE:
            yield from [project.profile] if project.profile is not None else []
        case Subject.PROJECT:
            # Nothing is found in nothing, which is no check that passed.
            yield from [project] if _holds_anything(project) else []


def _scripts(project: Project) -> list[Script]:
    """Those that could be parsed."""
    return [script for script in project.scripts if script.tree.body or not script.unread]


def _holds_anything(project: Project) -> bool:
    read = (_scripts(project), project.jobs, project.configs, project.launches, project.data, project.runs)
    return any(read) or project.environment is not None or project.profile is not None
