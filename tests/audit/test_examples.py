"""Promise: each rule finds its bad example, is silent on its good one, and is silenced by a comment with a reason."""

from pathlib import Path

import pytest

from dynotune.audit.finding import Finding, Risk
from dynotune.audit.fix.apply import proposed, write
from dynotune.audit.registry import rules
from dynotune.audit.rule import Rule
from dynotune.audit.run import Request, Result, audit
from tests.audit.made_up import audited

WITH_FILES = [rule for rule in rules().values() if rule.bad and rule.good]


def found(rule: Rule, result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == rule.code]


@pytest.mark.parametrize("rule", WITH_FILES, ids=lambda rule: rule.code)
class TestExamples:
    def test_the_bad_one_is_found(self, rule: Rule, tmp_path: Path) -> None:
        assert rule.bad
        result = audited(tmp_path, rule.bad.files)
        messages = [finding.message for finding in found(rule, result)]
        assert any(rule.bad.says in message for message in messages), (messages, result.project.not_read)

    def test_the_good_one_is_not(self, rule: Rule, tmp_path: Path) -> None:
        assert rule.good
        result = audited(tmp_path, rule.good.files)
        assert not found(rule, result)

    def test_safe_changes_leave_it_clean(self, rule: Rule, tmp_path: Path) -> None:
        """Applied, it still parses (or nothing is written), is found no more, and the diff is all that changed."""
        assert rule.bad
        result = audited(tmp_path, rule.bad.files)
        safe = [one for one in found(rule, result) if one.remedy.risk is Risk.SAFE and one.remedy.changes]
        if not safe:
            pytest.skip("its remedy is for people")
        proposal = proposed(result.project, safe)
        assert not proposal.left, [why for _, why in proposal.left]
        assert write(result.project, proposal) == (sorted(proposal.after), [])
        after = audit(Request(project=tmp_path))
        assert not [one for one in found(rule, after) if one.remedy.changes], proposal.diff()
        assert not {one.place.file for one in after.project.not_read} - {
            one.place.file for one in result.project.not_read
        }

    def test_a_comment_with_a_reason_silences_it_and_one_without_does_not(self, rule: Rule, tmp_path: Path) -> None:
        assert rule.bad
        first = audited(tmp_path / "first", rule.bad.files)
        open_ = found(rule, first)
        if any(not one.place.file or one.place.file.endswith(".json") for one in open_):
            pytest.skip("a baseline silences what stands in no file with comments")
        for reason, silenced in (("meant so", True), ("", False)):
            files = dict(rule.bad.files)
            for name in {one.place.file for one in open_}:
                files[name] = _commented(files[name], f"# dynotune: ignore-file[{rule.code}] {reason}")
            result = audited(tmp_path / str(silenced), files)
            assert (not found(rule, result)) is silenced
            assert any(one.finding.code == rule.code for one in result.suppressed) is silenced
            assert bool(result.remarks) is not silenced


def _commented(text: str, comment: str) -> str:
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        return f"{first}\n{comment}\n{rest}"
    return f"{comment}\n{text}"
