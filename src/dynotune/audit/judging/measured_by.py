"""The command that measures a remedy, in the project's own names: rules write it with the names of their examples."""

import re
from dataclasses import replace

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding

_EXAMPLE = re.compile(r"--config (?:sft|dpo)\.yaml\b")
_SCRIPT = re.compile(r"(?<![\w./-])train\.py\b")
_READ = (Trainer.DYNOTUNE, Trainer.TRL)
"""Whose configurations Dynotune's own commands read."""


def measured_by(finding: Finding, project: Project) -> Finding:
    """With its command in the project's names; without one that names a file which the project does not have."""
    measure = finding.remedy.measure
    if not measure.startswith("dynotune "):
        return finding
    if _EXAMPLE.search(measure):
        config = _configuration(finding, project)
        measure = _EXAMPLE.sub(lambda _: f"--config {config}", measure) if config else ""
    if _SCRIPT.search(measure):
        script = _script(finding, project)
        there = any(one.file == "train.py" for one in project.scripts) or not project.scripts
        measure = _SCRIPT.sub(lambda _: script, measure) if script else measure if there else ""
    return (
        finding
        if measure == finding.remedy.measure
        else replace(finding, remedy=replace(finding.remedy, measure=measure))
    )


def _configuration(finding: Finding, project: Project) -> str:
    """The job's own: of the finding's file, or of the project's only one."""
    homes = [
        job.home.file for job in project.jobs if job.trainer in _READ and job.home.file.endswith((".yaml", ".yml"))
    ]
    if finding.place.file in homes:
        return finding.place.file
    return homes[0] if len(set(homes)) == 1 else ""


def _script(finding: Finding, project: Project) -> str:
    """The Python file that trains: the finding's own, or the only one."""
    started = {file for job in project.jobs for file in job.files if file.endswith(".py")}
    launched = {launch.script for launch in project.launches if launch.script in started}
    if finding.place.file in started and (not launched or finding.place.file in launched):
        return finding.place.file
    found = launched or started
    return next(iter(found)) if len(found) == 1 else ""
