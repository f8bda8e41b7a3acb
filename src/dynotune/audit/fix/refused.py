"""Which safe changes `--fix` will not make, so that no output promises them."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding, Risk
from dynotune.audit.fix.apply import EDITORS, proposed

MOST_LINES = 1_000
"""Of Python that is edited on trial for one audit, since a syntax tree with its layout takes 0.6 ms a line. What is
beyond is judged by the kind of its file alone."""


def refused(project: Project, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Of the findings whose remedy is safe and has changes, those whose changes do not go into their files."""
    tried: list[Finding] = []
    found: list[Finding] = []
    lines = 0
    for finding in findings:
        changes = finding.remedy.changes
        if finding.remedy.risk is not Risk.SAFE or not changes:
            continue
        files = {change.place.file for change in changes}
        if any(file not in project.texts or PurePosixPath(file).suffix.lower() not in EDITORS for file in files):
            found.append(finding)
            continue
        lines += sum(project.texts[file].count("\n") for file in files if file.endswith(".py"))
        if lines <= MOST_LINES:
            tried.append(finding)
    return (*found, *(finding for finding, _ in proposed(project, tried).left))
