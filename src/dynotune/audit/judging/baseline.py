"""A file of findings that are known, so that a check fails on new ones alone: `--write_baseline`, `--baseline`.

A finding is known again by its rule, its file, its key and the text of its line: lines may move, figures may change.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynotune.audit.finding import Finding
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place
from dynotune.audit.registry import rules
from dynotune.errors import ConfigError
from dynotune.printable import printable

FORMAT = "dynotune audit baseline"
VERSION = 2
"""1: files by their place in the audited project, which depends on how that was named."""


Named = Callable[[str], str]
"""What a file is called in fingerprints."""


def fingerprints(findings: Iterable[Finding], texts: Mapping[str, str], named: Named = lambda file: file) -> list[str]:
    """Of each, in order; equal ones are numbered as they come."""
    seen: Counter[str] = Counter()
    return [_numbered(_base(finding, finding.code, texts, named), seen) for finding in findings]


def _base(finding: Finding, code: str, texts: Mapping[str, str], named: Named) -> str:
    place = finding.place
    lines = lines_of(texts.get(place.file, ""))
    line = lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""
    # Without a file, the message is all that tells two findings of one rule apart.
    told = "" if place.file else finding.message
    return "\0".join((code, named(place.file) if place.file else "", place.key, " ".join(line.split()), told))


def _numbered(base: str, seen: Counter[str]) -> str:
    seen[base] += 1
    return hashlib.sha256(f"{base}\0{seen[base]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Baseline:
    known: Mapping[str, str]
    """Fingerprint to what it was: for people."""

    folder: Path
    """It lies here. Files are known by their way from here, however the project was named."""

    def split(self, findings: Sequence[Finding], texts: Mapping[str, str], root: str) -> "Split":
        """By what of it is known."""
        new: list[Finding] = []
        old: list[Finding] = []
        past: dict[str, str] = {}
        left, named, seen = dict(self.known), _seen_from(self.folder, root), Counter[str]()
        for finding, mark in zip(findings, fingerprints(findings, texts, named), strict=True):
            if left.pop(mark, None) is not None:
                old.append(finding)
                continue
            # Known under the code of a rule that this one has taken over: numbered among those of that rule.
            rule = rules().get(finding.code)
            for code in rule.formerly if rule is not None else ():
                base = _base(finding, code, texts, named)
                counted = seen[base]
                if left.pop(_numbered(base, seen), None) is not None:
                    old.append(finding)
                    past[code] = finding.code
                    break
                seen[base] = counted
            else:
                new.append(finding)
        return Split(new, old, tuple(left.values()), past)


@dataclass(frozen=True, slots=True)
class Split:
    """Findings beside a baseline."""

    new: Sequence[Finding]
    known: Sequence[Finding]
    gone: Sequence[str]
    """What was known and is no longer there: for people."""

    past: Mapping[str, str]
    """Codes of the baseline that another rule has taken over, by which something is known, to that rule's."""

    def remarks(self) -> Iterator[str]:
        """Sentences on the file itself."""
        if self.gone:
            yield f"{len(self.gone)} of the baseline's findings are gone: write it again to keep it short."
        if self.past:
            meant = ", ".join(f"{old} is a part of {heir} now" for old, heir in sorted(self.past.items()))
            yield f"in the baseline, {meant}: write it again to name them so."


def read_baseline(path: Path) -> Baseline:
    """Raises `ConfigError`."""
    shown = printable(str(path))
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"the baseline {shown} cannot be read: {error.strerror}. `--write_baseline {shown}` makes one."
        ) from error
    except ValueError as error:
        raise ConfigError(f"the baseline {shown} is no JSON: {printable(str(error))}. Write it again.") from error
    rows = held.get("findings") if isinstance(held, dict) and held.get("format") == FORMAT else None
    if not isinstance(rows, list) or held.get("version") != VERSION:
        raise ConfigError(f"{shown} is no baseline of this version. Write it again: `--write_baseline {shown}`.")
    known = {}
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("fingerprint"), str):
            raise ConfigError(f"the baseline {shown} has an entry without a fingerprint. Write it again.")
        known[row["fingerprint"]] = f"{row.get('code', '?')} {row.get('where', '')}"
    return Baseline(known, path.parent)


def baseline_text(findings: Sequence[Finding], texts: Mapping[str, str], root: str, folder: Path) -> str:
    """The file in `folder` that knows all of these, of a project at `root`."""
    seen = _seen_from(folder, root)
    rows = [
        {
            "fingerprint": mark,
            "code": finding.code,
            "where": str(Place(seen(finding.place.file) if finding.place.file else "", key=finding.place.key)),
            "message": finding.message,
        }
        for finding, mark in zip(findings, fingerprints(findings, texts, seen), strict=True)
    ]
    return json.dumps({"format": FORMAT, "version": VERSION, "findings": rows}, indent=2) + "\n"


def _seen_from(folder: Path, root: str) -> Named:
    here, there = os.path.realpath(folder), os.path.realpath(root)
    return lambda file: Path(os.path.relpath(Path(there, file), here)).as_posix()
