"""What findings' changes make of files: worked out first, shown as a diff, then written, each file whole or not at all."""

import contextlib
import difflib
import io
import os
import shutil
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from dynotune.audit.change import Change
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding
from dynotune.audit.fix.keyed import changed_json, changed_yaml
from dynotune.audit.fix.shell_file import changed_shell
from dynotune.audit.fix.splice import NotAppliedError, Splice, between, spliced
from dynotune.audit.lines import lines_of
from dynotune.audit.regular import leaves
from dynotune.audit.secret_values import Secrets

BOM = b"\xef\xbb\xbf"


def _changed_python(text: str, change: Change) -> str:
    from dynotune.audit.fix.python_file import changed_python  # libcst takes a while, and most edits are of YAML

    return changed_python(text, change)


EDITORS: Mapping[str, Callable[[str, Change], str]] = {
    ".yaml": changed_yaml,
    ".yml": changed_yaml,
    ".json": changed_json,
    ".py": _changed_python,
    ".sh": changed_shell,
    ".bash": changed_shell,
    ".slurm": changed_shell,
    ".sbatch": changed_shell,
}


@dataclass
class Proposal:
    """What would be written, and what is left to people."""

    before: Mapping[str, str]
    after: dict[str, str] = field(default_factory=dict)
    splices: dict[str, list[Splice]] = field(default_factory=dict)
    """What `after` differs by."""

    findings: list[Finding] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    """With the reason: `not changed: ...`."""

    def diff(self) -> str:
        """Unified, as `patch` takes it; secrets are hidden."""
        parts = []
        secrets = Secrets(self.before)
        for file, after in sorted(self.after.items()):
            before = self.before[file]
            old, new = lines_of(before, keepends=True), lines_of(after, keepends=True)
            lines = map(secrets.hide_source, difflib.unified_diff(old, new, f"a/{file}", f"b/{file}"))
            parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
        return "".join(parts)


def proposed(project: Project, findings: Iterable[Finding]) -> Proposal:
    """The changes of all of these together. A finding whose changes do not all go is left out whole."""
    proposal = Proposal(project.texts)
    made: dict[str, list[Splice]] = {}
    for finding in findings:
        try:
            trial = _with(project, made, finding.remedy.changes)
            texts = {file: spliced(project.texts[file], splices) for file, splices in trial.items()}
            for file, text in texts.items():
                _require_parses(file, text)
        except NotAppliedError as error:
            proposal.left.append((finding, str(error)))
            continue
        made, proposal.after, proposal.splices = trial, texts, trial
        proposal.findings.append(finding)
    proposal.after = {file: text for file, text in proposal.after.items() if text != project.texts[file]}
    return proposal


def _with(project: Project, made: Mapping[str, list[Splice]], changes: Sequence[Change]) -> dict[str, list[Splice]]:
    texts = project.texts
    found = {file: list(splices) for file, splices in made.items()}
    for change in changes:
        file = change.place.file
        editor = EDITORS.get(Path(file).suffix.lower())
        if file not in texts or editor is None:
            raise NotAppliedError(f"{file or 'what is no file'} is none that can be edited")
        _require_writable(Path(project.root) / file)
        found.setdefault(file, []).append(between(texts[file], editor(texts[file], change)))
    return found


def _require_writable(path: Path) -> None:
    """What is not going to be written is not promised either. Raises `NotAppliedError`."""
    try:
        content = path.read_bytes()
    except OSError:
        return  # writing says so
    encoding = _encoding(path, content)
    try:
        content.removeprefix(BOM).decode(encoding)
    except UnicodeError:
        raise NotAppliedError(f"it is no text of its encoding ({encoding})") from None


def _require_parses(file: str, text: str) -> None:
    """Each change was checked alone; together they may meet."""
    import ast
    import json

    import yaml

    from dynotune.config.reading.files import Loader

    try:
        match Path(file).suffix.lower():
            case ".py":
                ast.parse(text)
            case ".json":
                json.loads(text)
            case ".yaml" | ".yml":
                yaml.load(text, Loader)  # noqa: S506  (a safe loader)
    except (SyntaxError, ValueError, yaml.YAMLError):
        raise NotAppliedError(
            "together with the others it would no longer parse: apply those, and audit again"
        ) from None


def write(project: Project, proposal: Proposal, named: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Write the files. Returns the names of those that were written, and sentences on those that were not.

    A link that leads out of the project is not written through, but where it was `named` by itself.
    """
    written, refused = [], []
    for file, after in sorted(proposal.after.items()):
        path = Path(os.path.realpath(Path(project.root) / file))
        if file not in named and leaves(path, Path(project.root)):
            refused.append(f"{file}: it lies outside of the project, and is left as it is: name it by itself")
            continue
        try:
            content = path.read_bytes()
            mark = BOM if content.startswith(BOM) else b""
            encoding = _encoding(path, content)
            if content.removeprefix(BOM) != proposal.before[file].encode(encoding):
                refused.append(f"{file}: it has changed since it was read, and is left as it is: audit again")
                continue
            replace_file(path, mark + after.encode(encoding))
        except (NotAppliedError, UnicodeError) as error:
            refused.append(f"{file}: it is left as it is: {error}")
            continue
        except OSError as error:
            refused.append(f"{file}: it cannot be written, and is left as it was: {error.strerror or error}")
            continue
        written.append(file)
    return written, refused


def _encoding(path: Path, content: bytes) -> str:
    """Raises `NotAppliedError` for one that is not written."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotAppliedError("it is UTF-16, and only UTF-8 is edited")
    if path.suffix.lower() != ".py":
        return "utf-8"
    try:
        return tokenize.detect_encoding(io.BytesIO(content.removeprefix(BOM)).readline)[0]
    except SyntaxError:
        raise NotAppliedError("its coding line names no encoding that it has") from None


def replace_file(path: Path, content: bytes) -> None:
    """In one step, with the permissions and the owner that it has. A file that says that it is not to be written is not."""
    held = path.stat()
    # Root may write everything; who took the right to write from a file meant everybody.
    if not os.access(path, os.W_OK) or not held.st_mode & 0o222:
        raise PermissionError(None, "its permissions do not allow it")
    if held.st_nlink > 1:
        raise PermissionError(None, "it has several names (hard links), of which one would be changed alone")
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with half.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        made = half.stat()
        if (made.st_uid, made.st_gid) != (held.st_uid, held.st_gid):
            os.chown(half, held.st_uid, held.st_gid)
        shutil.copymode(path, half)
        half.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink()
        raise


def replacements(text: str, splices: Iterable[Splice]) -> list[tuple[int, int, int, int, str]]:
    """First line and column, last line and the column behind it (all from 1), and what stands there instead."""
    starts = [0, *accumulate(map(len, lines_of(text, keepends=True)))]

    def at(offset: int) -> tuple[int, int]:
        line = bisect_right(starts, offset) - 1
        return line + 1, offset - starts[line] + 1

    return [(*at(one.start), *at(one.end), one.text) for one in sorted(set(splices))]
