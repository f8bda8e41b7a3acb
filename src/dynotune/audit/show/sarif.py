"""An audit as SARIF 2.1.0 (OASIS), which code hosts show beside the lines of a change."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dynotune._version import __version__
from dynotune.audit.finding import Finding, Severity, severity
from dynotune.audit.judging.baseline import fingerprints
from dynotune.audit.place import Place
from dynotune.audit.registry import rules
from dynotune.audit.rule import Rule
from dynotune.audit.run import Result
from dynotune.audit.show import words
from dynotune.audit.show.as_json import plain
from dynotune.audit.show.terminal import details

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
FINGERPRINT = "dynotune/v1"
ROOT = "PROJECT"

Replacement = tuple[int, int, int, int, str]
"""First line and column, last line and the column behind it (all from 1), what stands there instead."""

Fixes = Callable[[Finding], Mapping[str, Sequence[Replacement]]]
"""What a finding's safe changes make of files; empty for none."""


def sarif(result: Result, fixes: Fixes) -> dict[str, Any]:
    """The log. Suppressed findings are in it, with their reasons, as the standard asks."""
    shown = [(one, None) for one in result.findings] + [(one.finding, one.by.reason) for one in result.suppressed]
    marks = fingerprints((one for one, _ in shown), result.project.texts)
    codes = sorted({one.code for one, _ in shown} | set(result.passed))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dynotune audit",
                        "semanticVersion": __version__,
                        "rules": [_rule(rules()[code]) for code in codes],
                    }
                },
                "originalUriBaseIds": {ROOT: {"description": {"text": "The folder that was audited."}}},
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": bool(result.checked),
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": text}}
                            for text in (
                                words.checked(result),
                                *words.holes(result),
                                *words.not_read(result),
                                *words.remarks(result),
                            )
                        ],
                    }
                ],
                "results": [
                    _result(one, reason, mark, codes, result, fixes)
                    for (one, reason), mark in zip(shown, marks, strict=True)
                ],
            }
        ],
    }


def sarif_text(result: Result, fixes: Fixes) -> str:
    return json.dumps(sarif(result, fixes), indent=2, allow_nan=False) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    page = rule.page
    help_text = "\n\n".join((page.what, page.why, f"How it is seen: {page.detected}", f"Prove it: {page.proven}"))
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": page.what},
        "help": {"text": help_text, "markdown": help_text},
        "properties": {"tags": [str(rule.group)]},
    }


def _result(
    finding: Finding, reason: str | None, mark: str, codes: list[str], result: Result, fixes: Fixes
) -> dict[str, Any]:
    lines = [finding.message, finding.remedy.text, *details(finding)]
    said: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": LEVELS[severity(finding.stake)],
        "message": {"text": "\n".join(words.text(line) for line in lines)},
        "partialFingerprints": {FINGERPRINT: mark},
        "properties": {
            "evidence": words.level(finding),
            "facts": plain(finding.evidence.facts),
            "risk": str(finding.remedy.risk),
            "atStake": str(finding.stake.what),
            "effect": words.effect(finding, result),
        },
    }
    if finding.place.file:
        said["locations"] = [_location(finding.place)]
    related = [_location(place) for place in finding.also if place.file]
    if related:
        said["relatedLocations"] = related
    if reason is not None:
        said["suppressions"] = [{"kind": "inSource", "justification": reason}]
    else:
        said["suppressions"] = []
    changed = fixes(finding)
    if changed:
        said["fixes"] = [
            {
                "description": {"text": words.text(finding.remedy.text)},
                "artifactChanges": [
                    {
                        "artifactLocation": _artifact(file),
                        "replacements": [
                            {
                                "deletedRegion": {
                                    "startLine": line,
                                    "startColumn": column,
                                    "endLine": last,
                                    "endColumn": behind,
                                },
                                "insertedContent": {"text": text},
                            }
                            for line, column, last, behind, text in replacements
                        ],
                    }
                    for file, replacements in changed.items()
                ],
            }
        ]
    return said


def _artifact(file: str) -> dict[str, str]:
    return {"uri": quote(os.fsencode(file)), "uriBaseId": ROOT}


def _location(place: Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(place.file)}
    if place.cell:  # the lines of its JSON are others
        return {"physicalLocation": physical, "message": {"text": place.cell}}
    if place.line:
        region = {"startLine": place.line}
        if place.column:
            region["startColumn"] = place.column
        if place.end_line >= place.line:
            region["endLine"] = place.end_line
            if place.end_column:
                region["endColumn"] = place.end_column
        physical["region"] = region
    return {"physicalLocation": physical}
