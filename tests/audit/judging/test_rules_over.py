"""Promise: every rule is asked about every subject, and is counted once: found, passed, or not checked with the reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import NotChecked, Said
from dynotune.audit.judging.choice import chosen
from dynotune.audit.judging.rules_over import NONE_OF, judge
from dynotune.audit.registry import rules
from dynotune.audit.rule import Group, Page, Rule, Subject
from dynotune.errors import ConfigError
from tests.audit.made_up import a_finding, audited

PAGE = Page("a", "b", "c", "d", ("e",))
JOB = Job(Trainer.TRL, Method.SFT, {})


def rule(code: str, *said: Said, subject: Subject = Subject.JOB) -> Rule:
    def check(one: object, project: Project) -> Iterator[Said]:
        yield from said

    return Rule(code, "a-rule", "A rule.", Group.PERFORMANCE, subject, check, PAGE)


def test_found_passed_and_not_checked() -> None:
    asked = {
        "OPT001": rule("OPT001", a_finding(code="")),
        "OPT002": rule("OPT002"),
        "OPT003": rule("OPT003", NotChecked("the length is not known")),
        "ENV001": rule("ENV001", subject=Subject.ENVIRONMENT),
    }
    judged = judge(Project(".", jobs=[JOB, JOB]), asked)
    assert [one.code for one in judged.findings] == ["OPT001"]  # of two jobs that share a line, once
    assert judged.passed == ("OPT002",)
    assert {one.code: one.why for one in judged.not_checked} == {
        "OPT003": "the length is not known",
        "ENV001": NONE_OF[Subject.ENVIRONMENT],
    }


def test_every_subject_says_why_it_is_not_there() -> None:
    assert set(NONE_OF) == set(Subject)


def test_a_rule_on_the_project_as_a_whole_is_not_checked_on_an_empty_one() -> None:
    asked = {"OPT001": rule("OPT001", subject=Subject.PROJECT)}
    assert judge(Project("."), asked).passed == ()
    assert judge(Project(".", jobs=[JOB]), asked).passed == ("OPT001",)


def test_rules_are_chosen_by_code_family_and_name() -> None:
    assert list(chosen(rules(), ["opt001"], [])) == ["OPT001"]
    assert "OPT001" in chosen(rules(), ["OPT,ATT"], [])
    assert list(chosen(rules(), ["unfused-optimizer"], [])) == ["OPT001"]
    assert "OPT001" not in chosen({**rules(), "ATT999": rule("ATT999")}, [], ["OPT"])


def test_a_word_that_is_no_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        chosen(rules(), ["OPT0001"], [])
    with pytest.raises(ConfigError, match="leave no rule"):
        chosen(rules(), ["OPT001"], ["OPT"])


def test_a_value_that_is_a_flags_default_is_found_by_the_flag_too(tmp_path: Path) -> None:
    """Who mends the batch changes the default and not the call that passes it on."""
    text = (
        "import typer\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n\n"
        "def main(rows: int = 1, steps: int = 64):\n"
        '    args = TrainingArguments("out", per_device_train_batch_size=rows, gradient_accumulation_steps=steps)\n'
        '    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
        "    Trainer(model, args, train_dataset=data).train()\n\n\ntyper.run(main)\n"
    )
    told = {"train.py": text, "README.md": "RTX 4090. Rows have 250 tokens on average.\n"}
    (found,) = [one for one in audited(tmp_path, told).findings if one.code == "OPT004"]
    assert 5 in [one.line for one in found.also]
