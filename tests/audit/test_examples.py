"""Promise: each rule finds its bad example, is silent on its good one, and is silenced by a comment with a reason."""

from pathlib import Path

import pytest

from dynotune.audit.finding import Finding, Risk
from dynotune.audit.fix.apply import proposed, write
from dynotune.audit.judging.choice import chosen
from dynotune.audit.registry import WITHDRAWN, heirs, rules
from dynotune.audit.rule import Example, Rule
from dynotune.audit.run import Request, Result, audit
from dynotune.errors import ConfigError
from tests.audit.made_up import audited

EVERY_BAD = [(rule, bad) for rule in rules().values() if rule.bad and rule.good for bad in (rule.bad, *rule.also_bad)]


def found(rule: Rule, result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == rule.code]


@pytest.mark.parametrize(("rule", "bad"), EVERY_BAD, ids=lambda one: one.code if isinstance(one, Rule) else "")
class TestExamples:
    def test_the_bad_one_is_found(self, rule: Rule, bad: Example, tmp_path: Path) -> None:
        result = audited(tmp_path, bad.files)
        messages = [finding.message for finding in found(rule, result)]
        assert any(bad.says in message for message in messages), (messages, result.project.not_read)

    def test_the_good_one_is_not(self, rule: Rule, bad: Example, tmp_path: Path) -> None:
        assert rule.good
        if bad is not rule.bad:
            pytest.skip("asked once for each rule")
        result = audited(tmp_path, rule.good.files)
        assert not found(rule, result)

    def test_safe_changes_leave_it_clean(self, rule: Rule, bad: Example, tmp_path: Path) -> None:
        """Applied, it still parses (or nothing is written), is found no more, and the diff is all that changed."""
        result = audited(tmp_path, bad.files)
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

    def test_a_comment_with_a_reason_silences_it_and_one_without_does_not(
        self, rule: Rule, bad: Example, tmp_path: Path
    ) -> None:
        first = audited(tmp_path / "first", bad.files)
        open_ = found(rule, first)
        if any(not one.place.file or one.place.file.endswith(".json") for one in open_):
            pytest.skip("a baseline silences what stands in no file with comments")
        for reason, silenced in (("meant so", True), ("", False)):
            files = dict(bad.files)
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


TAKEN = [(rule, old) for rule in rules().values() for old in (*rule.formerly, *rule.former_names)]


@pytest.mark.parametrize(("rule", "old"), TAKEN, ids=lambda one: one if isinstance(one, str) else "")
def test_what_a_rule_that_was_taken_over_was_called_means_its_heir_and_is_said(
    rule: Rule, old: str, tmp_path: Path
) -> None:
    """Code and name, in a comment, in `--ignore` and `--select`; what never was any suppresses nothing, and is said."""
    assert old not in rules()
    assert set(chosen(rules(), (old,), ())) == {rule.code}
    assert rule.code not in chosen(rules(), (), (old.upper(),))
    if rule.bad is None:
        return
    first = audited(tmp_path / "first", rule.bad.files, select=(old,))
    assert {one.code for one in first.findings} == {rule.code}
    assert said(first) == [f"`--select`: {old} is a part of {rule.code} now, and all of that is checked."]
    name = next(iter({one.place.file for one in first.findings}))
    never = f"{old[:3]}777" if old.isupper() else f"{old}-or-not"
    for word, silenced in ((old, True), (never, False)):
        files = {**rule.bad.files, name: f"# dynotune: ignore-file[{word}] meant so\n{rule.bad.files[name]}"}
        result = audited(tmp_path / word, files, select=(rule.code,))
        assert bool(result.findings) is not silenced
        assert sum(f"{word} is a part of {rule.code} now" in one for one in said(result)) == silenced
        assert any(f"there is no rule {word}:" in one for one in said(result)) is not silenced


def test_an_old_name_in_many_comments_is_said_once(tmp_path: Path) -> None:
    lines = [
        "optim_arg: 1  # dynotune: ignore[anothers-key] meant so",
        "lerning_rate: 1  # dynotune: ignore[CFG004] so",
    ]
    lines += ["wrmup_steps: 1  # dynotune: ignore[Anothers-Key, OPT001] meant so"]
    result = audited(
        tmp_path, {"sft.yaml": "\n".join(["trainer: sft", "model_name_or_path: m", "dataset_name: d", *lines])}
    )
    assert said(result) == [
        "anothers-key is a part of CFG001 now, and all of that is suppressed here and in 1 more comment: name it so.",
        "CFG004 is a part of CFG001 now, and all of that is suppressed here: name it so.",
    ]
    assert len([one for one in result.suppressed if one.finding.code == "CFG001"]) == 3


def said(result: Result) -> list[str]:
    return [text for _, text in result.remarks]


@pytest.mark.parametrize("word", ["LOR004", "extreme-scale"])
def test_what_is_gone_stops_no_audit_and_is_said(word: str, tmp_path: Path) -> None:
    """In `--ignore` and in a comment; alone in `--select` it leaves nothing to check."""
    files = {"sft.yaml": f"optim: adamw_torch  # dynotune: ignore[{word}] as it was\n"}
    result = audited(tmp_path, files, ignore=(word,))
    assert said(result) == [
        f"`--ignore`: there is no rule {word} any more.",
        f"there is no rule {word} any more: this suppresses nothing of it.",
    ]
    with pytest.raises(ConfigError, match=f"leave no rule to check. `--select`: there is no rule {word} any more"):
        audited(tmp_path, files, select=(word,))
    with pytest.raises(ConfigError, match="no rule or family is called extreme-scales"):
        audited(tmp_path, files, select=("extreme-scales",))
    assert not {*WITHDRAWN, *WITHDRAWN.values()} & {*rules(), *heirs(), *(rule.name for rule in rules().values())}


def test_a_comment_may_name_a_rule(tmp_path: Path) -> None:
    """As flags may; and one that finds nothing is said, by that name."""
    for name, silenced in (("unfused-optimizer", True), ("unknown-key", False)):
        text = f"model_name_or_path: m\noptim: adamw_torch  # dynotune: ignore[{name}] slower here\n"
        result = audited(tmp_path / name, {"sft.yaml": text}, select=("OPT001", "CFG001"))
        assert [one.code for one in result.findings] == ([] if silenced else ["OPT001"])
        assert said(result) == ([] if silenced else ["nothing is found here for unknown-key: take the comment out."])
