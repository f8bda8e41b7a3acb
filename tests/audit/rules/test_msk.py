"""Promise: rules on masks and templates say what is trained that was not meant, and what is not that was."""

import pytest

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake
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
