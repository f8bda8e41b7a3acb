"""Promise: each rule finds its bad example, is silent on its good one, and is silenced by a comment with a reason."""

from pathlib import Path

import pytest
import yaml

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import Finding
from dynotune.audit.judging.rules_over import judge
from dynotune.audit.place import Place
from dynotune.audit.registry import rules
from dynotune.audit.rule import Rule
from dynotune.audit.run import Result, reader
from tests.audit.made_up import audited

READS = reader("read.project", "read_project") is not None
WITH_FILES = [rule for rule in rules().values() if rule.bad and rule.good]


def found(rule: Rule, result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == rule.code]


if not READS:  # until the reader of whole projects has landed: flat YAML of TRL, by the contract alone

    @pytest.mark.parametrize("rule", WITH_FILES, ids=lambda rule: rule.code)
    def test_flat_examples_by_a_reader_of_this_test(rule: Rule) -> None:
        assert rule.bad
        assert rule.good
        if len(rule.bad.files) > 1 or "sft.yaml" not in rule.bad.files:
            pytest.skip("needs the reader of whole projects")
        bad, good = _flat(rule.bad.files["sft.yaml"]), _flat(rule.good.files["sft.yaml"])
        (one,) = judge(bad, {rule.code: rule}).findings
        assert rule.bad.says in one.message
        assert not judge(good, {rule.code: rule}).findings


def _flat(text: str) -> Project:
    lines = [line.partition(":")[0] for line in text.splitlines()]
    settings = {
        key: Setting(key, value, Place("sft.yaml", lines.index(key) + 1, key=key))
        for key, value in yaml.safe_load(text).items()
    }
    return Project(".", jobs=[Job(Trainer.TRL, Method.SFT, settings, home=Place("sft.yaml"))])


@pytest.mark.skipif(not READS, reason="the reader of whole projects has not landed")
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
