"""`dynotune audit --fix`: safe changes applied, the others asked for, and what the next audit says of them."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dynotune.audit.finding import Finding, Risk
from dynotune.audit.fix.apply import Proposal, proposed, replace_file, replacements, write
from dynotune.audit.run import Request, Result, audit
from dynotune.audit.secret_values import Secrets
from dynotune.audit.show import words
from dynotune.audit.show.sarif import Fixes, Replacement
from dynotune.errors import ConfigError
from dynotune.terminal import printable_lines

Say = Callable[[str], None]
Ask = Callable[[str], bool]


def for_sarif(result: Result) -> Fixes:
    """The safe changes of one finding, by line and column; none where they would hold a secret."""
    secrets = Secrets(result.project.texts)

    def fixes(finding: Finding) -> dict[str, list[Replacement]]:
        if finding.remedy.risk is not Risk.SAFE or not finding.remedy.changes:
            return {}
        one = proposed(result.project, [finding])
        said = [str(change.value) for change in finding.remedy.changes]
        said += [splice.text for of in one.splices.values() for splice in of]
        if any(secrets.hide_source(text) != text for text in said):
            return {}
        return {file: replacements(one.before[file], one.splices[file]) for file in one.after}

    return fixes


def propose(result: Result, *, ask: Ask | None, say: Say) -> Proposal:
    """Safe changes; of numeric ones those that `ask` is told yes for. Says what cannot be changed."""
    wanted = list(_of(result.findings, Risk.SAFE))
    if ask is not None:
        for finding in _of(result.findings, Risk.NUMERIC):
            say(f"{finding.code} at {words.where(finding)}: {words.text(finding.message)}")
            say(
                f"  {words.text(finding.remedy.text)} It rounds otherwise. {words.text(finding.remedy.accuracy)}".rstrip()
            )
            if ask("  apply it? [y/N] "):
                wanted.append(finding)
    proposal = proposed(result.project, wanted)
    if proposal.after:
        say(printable_lines(proposal.diff()).rstrip())
    else:
        say("Nothing to apply: no safe change is left.")
    for finding, why in proposal.left:
        say(f"not changed: {finding.code} at {words.where(finding)}: {words.text(why)}")
    return proposal


def _of(findings: Sequence[Finding], risk: Risk) -> Iterable[Finding]:
    return (one for one in findings if one.remedy.risk is risk and one.remedy.changes)


def apply(request: Request, result: Result, proposal: Proposal, say: Say) -> Result:
    """Write, audit again, and say what is clean now. A file that cannot be read any more, or in which something is still
    found that was to be mended, gets back what stood in it."""
    root = Path(result.project.root)
    held = {file: (root / file).read_bytes() for file in proposal.after if (root / file).is_file()}
    written, refused = write(result.project, proposal, result.named)
    for sentence in refused:
        say(words.text(sentence))
    if not written:
        return result
    after = audit(request)
    unread = {one.place.file for one in after.project.not_read} - {one.place.file for one in result.project.not_read}
    for file in sorted(unread & set(written)):
        replace_file((root / file).resolve(), held[file])
        say(f"{words.text(file)}: it could not be read after the change, and is as it was")
        written.remove(file)
        after = audit(request)
    stuck = _still_found(_touched(proposal, written), result, after)
    if stuck:
        useless = {change.place.file for finding in stuck for change in finding.remedy.changes}
        for file in sorted(useless & set(written)):
            replace_file((root / file).resolve(), held[file])
            say(f"{words.text(file)}: it is as it was, since this is still found after the change:")
            written.remove(file)
        for finding in stuck:
            say(f"  {finding.code} at {words.where(finding)}")
        after = audit(request)
    for finding in _touched(proposal, written):
        say(f"{finding.code} at {words.where(finding)}: clean now")
    before = {one.code for one in result.findings}
    new = sorted({one.code for one in after.findings} - before)
    if new:
        say(f"found only after the change: {', '.join(new)}. `git diff` shows it; undo it if it is not wanted.")
    return after


def _touched(proposal: Proposal, written: Sequence[str]) -> list[Finding]:
    return [one for one in proposal.findings if {change.place.file for change in one.remedy.changes} <= set(written)]


def _still_found(changed: Sequence[Finding], before: Result, after: Result) -> list[Finding]:
    """Of these, the ones that are found as often as if nothing had been done about them. Lines may have moved."""

    def count(findings: Sequence[Finding]) -> Counter[tuple[str, str, str]]:
        return Counter((one.code, one.place.file, one.place.key) for one in findings)

    wanted = count(before.findings)
    wanted.subtract(count(changed))
    found = count(after.findings)
    return [one for one in changed if found[key := (one.code, one.place.file, one.place.key)] > wanted[key]]


def require_terminal() -> None:
    """Raises `ConfigError` where there is none to ask on."""
    if not sys.stdin.isatty():
        raise ConfigError("`--unsafe` asks for each change, and there is no terminal. Leave it out, or edit by hand.")


def on_terminal(prompt: str) -> bool:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
