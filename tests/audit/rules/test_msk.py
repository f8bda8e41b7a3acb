"""Promise: rules on masks and templates say what is trained that was not meant, and what is not that was."""

import ast

import pytest

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake
from dynotune.audit.place import Place
from tests.audit.rules.facts import a_job, findings, some_data


@pytest.mark.parametrize(
    "form", ["messages (4 rows)", "ShareGPT conversations (4 rows)", "text in the column `text` (4 rows)"]
)
def test_a_mask_for_another_format(form: str) -> None:
    data, job = some_data(format=form), a_job(completion_only_loss=True)
    (found,) = findings("MSK001", data, Project(".", [job], data=[data]))
    assert found.stake.what is AtStake.RESULT
    assert "prompts included" in found.message


def test_masks_that_fit() -> None:
    for form, key in (
        ("prompt_completion (4 rows)", "completion_only_loss"),
        ("messages (4 rows)", "assistant_only_loss"),
        ("messages (4 rows)", "packing"),
    ):
        data, job = some_data(format=form), a_job(**{key: True})
        assert not findings("MSK001", data, Project(".", [job], data=[data]))
    data, job = some_data(format="text in the column `text` (4 rows)"), a_job(assistant_only_loss=True)
    (found,) = findings("MSK001", data, Project(".", [job], data=[data]))
    assert found.stake.what is AtStake.STOPS


def test_templates() -> None:
    found = {
        "end-token-never-trained": "No end.",
        "template-strips-earlier-reasoning": "As usual.",
        "template-drops-tools": "T.",
    }
    (said,) = findings("MSK002", some_data(template={"findings": found}))
    assert said.message == "No end."
    with_tools = some_data(template={"findings": found}, ledger={"notices": {"template-drops-tools": 3}})
    assert len(findings("MSK002", with_tools)) == 2
    assert not findings("MSK002", some_data())


def script(pad: str, mlm: object = False, name: str = "transformers.DataCollatorForLanguageModeling") -> Script:
    source = f"tokenizer = 1\n{pad}\n"
    arguments = {"mlm": Setting("mlm", mlm, Place("t.py", 3))} if mlm is not None else {}
    return Script("t.py", source, ast.parse(""), [Call(name, arguments, Place("t.py", 3))], {}, {})


def test_an_end_that_is_masked() -> None:
    (found,) = findings("MSK003", script("tokenizer.pad_token = tokenizer.eos_token"))
    assert found.also == (Place("t.py", 2),)
    assert findings("MSK003", script("tok.pad_token_id = model.config.eos_token_id"))


@pytest.mark.parametrize(
    "near",
    [
        script("tokenizer.pad_token = '<pad>'"),
        script("# tokenizer.pad_token = tokenizer.eos_token"),
        script("tokenizer.pad_token = tokenizer.eos_token", mlm=True),
        script("tokenizer.pad_token = tokenizer.eos_token", mlm=None),
        script("tokenizer.pad_token = tokenizer.eos_token", name="trl.trainer.DataCollatorForLanguageModeling"),
    ],
)
def test_an_end_that_is_learned(near: Script) -> None:
    assert not findings("MSK003", near)


def run(*losses: object, grad: object = 0) -> RunFacts:
    return RunFacts(
        "out", "transformers", [{"step": n, "loss": loss, "grad_norm": grad} for n, loss in enumerate(losses, 1)]
    )


def test_a_run_that_learns_nothing() -> None:
    (found,) = findings("MSK004", run(2.0, 0.0, 0.0, 0.0))
    assert "3 of 4 logged steps (the first: 2)" in found.message
    (found,) = findings("MSK004", run(2.0, float("nan"), grad=1.0))
    assert "no number" in found.message
    assert findings("MSK004", run(2.0, grad="NaN"))
    for near in (run(2.0, 0.0, 0.0), run(0.0, 0.0, 0.0, grad=0.5), run(2.0, 1.0, grad=1.0), run()):
        assert not findings("MSK004", near)
