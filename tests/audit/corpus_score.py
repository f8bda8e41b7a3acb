"""How right the audit is on labelled projects: precision and recall of a part of the corpus.

python -m tests.audit.corpus_score tests/audit/corpus/after
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynotune.audit.finding import Finding
from dynotune.audit.registry import heirs
from dynotune.audit.run import Request, audit

NEAR = 3
"""Lines between a label and a finding that mean the same: a call and its argument, a key and its parent."""


@dataclass
class Score:
    right: list[str] = field(default_factory=list)
    """Findings that are one of the problems."""

    false: list[str] = field(default_factory=list)
    """Findings that are neither a problem nor debatable."""

    found: list[str] = field(default_factory=list)
    """Problems that a finding names."""

    missed: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return len(self.right) / max(len(self.right) + len(self.false), 1)

    @property
    def recall(self) -> float:
        return len(self.found) / max(len(self.found) + len(self.missed), 1)

    def __str__(self) -> str:
        return (
            f"precision {len(self.right)} of {len(self.right) + len(self.false)}, {self.precision:.2f};"
            f" recall {len(self.found)} of {len(self.found) + len(self.missed)}, {self.recall:.2f}"
        )


def means(finding: Finding, label: dict[str, Any]) -> bool:
    """Whether a finding says what a label says: a rule of its families (or one of the rules that it names whole, by what
    they are called now), at its place or at the fault's other end."""
    families = tuple(heirs().get(one, one) for one in label.get("families") or ())
    if families and not finding.code.startswith(families):
        return False
    return any(
        place.file == there["file"] and (not place.line or abs(place.line - there["line"]) <= NEAR)
        for place in (finding.place, *finding.also)
        for there in (label, *label.get("also", ()))
    )


def score(name: str, findings: Sequence[Finding], labels: dict[str, Any], into: Score) -> None:
    """Add one project."""
    for finding in findings:
        said = f"{name}: {finding.code} {finding.place}: {finding.message}"
        if any(means(finding, label) for label in labels["problems"]):
            into.right.append(said)
        elif not any(means(finding, label) for label in labels["debatable"]):
            into.false.append(said)
    for label in labels["problems"]:
        found = any(means(finding, label) for finding in findings)
        (into.found if found else into.missed).append(f"{name}: {label['file']}:{label['line']}: {label['what']}")


def score_of(part: Path) -> Score:
    """Of all projects in a folder, each with its labels beside it."""
    total = Score()
    for labels in sorted(part.glob("*.json")):
        found = audit(Request(project=labels.with_suffix(""))).findings
        score(labels.stem, found, json.loads(labels.read_text(encoding="utf-8")), total)
    return total


if __name__ == "__main__":
    result = score_of(Path(sys.argv[1]))
    print(*(f"false   {one}" for one in result.false), *(f"missed  {one}" for one in result.missed), result, sep="\n")
