"""An audit as one JSON object."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune._version import __version__
from dynotune.audit.cost import together
from dynotune.audit.finding import Finding, severity
from dynotune.audit.judging.baseline import fingerprints
from dynotune.audit.place import Place
from dynotune.audit.plan.phases import phases
from dynotune.audit.registry import rules
from dynotune.audit.run import Result
from dynotune.audit.show import words

VERSION = 1


def as_json(result: Result) -> dict[str, Any]:
    """Everything that the other outputs say."""
    marks = fingerprints(result.findings, result.project.texts)
    project = result.project
    return {
        "format": "dynotune audit",
        "version": VERSION,
        "dynotune": __version__,
        "root": project.root,
        "findings": [
            {**_finding(one, result), "fingerprint": mark} for one, mark in zip(result.findings, marks, strict=True)
        ],
        "suppressed": [
            {
                **_finding(one.finding, result),
                "reason": one.by.reason,
                "until": one.by.until.isoformat() if one.by.until else None,
            }
            for one in result.suppressed
        ],
        "known": [_finding(one, result) for one in result.known],
        "passed": [{"code": code, "name": words.name(code)} for code in result.passed],
        "checked": result.checked,
        "not_checked": [
            {"code": one.code, "why": one.why, "place": plain(one.place) if one.place else None}
            for one in result.not_checked
        ],
        "data": [
            {"place": plain(one.place), "rows": one.rows, "sampled": one.sampled, "said": list(one.said)}
            for one in project.data
        ],
        "not_read": [{"place": plain(one.place), "why": one.why} for one in project.not_read],
        "not_followed": [{"place": plain(hole.place), "why": hole.why} for job in project.jobs for hole in job.holes],
        "remarks": [{"place": plain(place), "text": said} for place, said in result.remarks],
        "jobs": [
            {
                "trainer": str(job.trainer),
                "method": plain(job.method),
                "home": plain(job.home),
                "files": list(job.files),
            }
            for job in project.jobs
        ],
        "together": {"share_of_step": together(result.findings), "epoch_seconds": result.cost.epoch_seconds},
        "plan": [
            {
                "phase": phase.when.name.lower(),
                "steps": [
                    {
                        "code": step.code,
                        "text": step.text,
                        "places": [plain(one.place) for one in step.findings],
                        "by_fix": step.by_fix,
                        "measure": step.measures or None,
                    }
                    for step in phase.steps
                ],
            }
            for phase in phases(result.findings, result.cost, result.refused)
        ],
        "bottleneck": words.bottleneck(result),
        "next": words.next_action(result),
    }


def json_text(result: Result) -> str:
    return json.dumps(as_json(result), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _finding(finding: Finding, result: Result) -> dict[str, Any]:
    cost = result.cost.seconds(finding)
    rule = rules().get(finding.code)
    return {
        "code": finding.code,
        "name": words.name(finding.code),
        "group": str(rule.group) if rule else None,
        "severity": severity(finding.stake).name.lower(),
        "message": finding.message,
        "place": plain(finding.place),
        "also": [plain(place) for place in finding.also],
        "evidence": {"level": words.level(finding), "facts": plain(finding.evidence.facts)},
        "stake": {
            "what": str(finding.stake.what),
            "low": plain(finding.stake.low),
            "high": plain(finding.stake.high),
            "source": finding.stake.source,
            "epoch_seconds": plain(list(cost)) if cost else None,
        },
        "remedy": plain(finding.remedy),
        "deliberate": finding.deliberate,
    }


def plain(value: Any) -> Any:
    """As JSON has it; what it has no form for as text."""
    if isinstance(value, Place):
        return {
            "file": value.file,
            "line": value.line,
            "column": value.column,
            "end_line": value.end_line,
            "end_column": value.end_column,
            "key": value.key,
        }
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    return value.as_posix() if isinstance(value, Path) else str(value)
