"""Promise: rules on preference training know what TRL does with a key, and what a reference costs."""

from typing import Any

import pytest

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.finding import AtStake
from tests.audit.rules.facts import UNKNOWN, Default, a_job, findings, some_data

REFERENCE: dict[str, Any] = {"precompute_ref_log_probs": Default(False), "num_train_epochs": 3, "use_peft": True}


def dpo(trainer: Trainer = Trainer.TRL, **values: Any) -> Any:
    return a_job(trainer, Method.DPO, **values)


def test_a_reference_at_every_step() -> None:
    (found,) = findings("DPO001", dpo(**REFERENCE))
    assert found.stake.what is AtStake.TIME
    assert found.stake.high == pytest.approx(0.29 * 2 / 3)
    full = {"use_peft": False, "model_name_or_path": "Qwen/Qwen2.5-7B", "num_train_epochs": 1}
    (found,) = findings("DPO001", dpo(**REFERENCE | full))
    assert found.stake.what is AtStake.MEMORY
    assert found.stake.high == pytest.approx(7e9 * 4 / 2**30)


@pytest.mark.parametrize(
    "other",
    [
        {"num_train_epochs": 1},
        {"precompute_ref_log_probs": True},
        {"precompute_ref_log_probs": UNKNOWN},
        {"sync_ref_model": True},
        {"max_steps": 100},
        {"use_peft": UNKNOWN},
        {"use_peft": False, "model_name_or_path": "mine", "num_train_epochs": 1},
    ],
)
def test_a_reference_that_costs_nothing_more(other: dict[str, Any]) -> None:
    assert not findings("DPO001", dpo(**REFERENCE | other))
    assert not findings("DPO001", dpo(Trainer.DYNOTUNE, **REFERENCE))


def test_a_stale_cache() -> None:
    assert findings("DPO002", dpo(precompute_ref_log_probs=True, truncation_mode="keep_end"))
    assert findings("DPO002", dpo(precompute_ref_log_probs=True, max_length=None))
    for values in (
        {"precompute_ref_log_probs": True, "max_length": 1024},
        {"precompute_ref_log_probs": True, "max_length": UNKNOWN},
        {"precompute_ref_log_probs": False, "truncation_mode": "keep_end"},
        {"precompute_ref_log_probs": True, "truncation_mode": Default("keep_end")},
    ):
        assert not findings("DPO002", dpo(**values))
    assert not findings("DPO002", a_job(precompute_ref_log_probs=True, truncation_mode="keep_end"))


def test_padding_free_in_dpo() -> None:
    (found,) = findings("CFG005", dpo(padding_free=True, versions={"trl": "1.16.0"}))
    assert found.remedy.changes[0].name == "padding_free"
    (found,) = findings("CFG005", dpo(Trainer.AXOLOTL, keys={"dpo_padding_free": True}))
    assert found.remedy.changes[0].name == "dpo_padding_free"
    for job in (
        dpo(padding_free=False),
        dpo(padding_free=True, versions={"trl": "0.19.0"}),
        a_job(padding_free=True),
        dpo(Trainer.LLAMA_FACTORY, padding_free=True),
    ):
        assert not findings("CFG005", job)


def test_pairs_without_a_preference() -> None:
    told: dict[str, Any] = {"rows_read": 100, "skipped": {"chosen-equals-rejected": 2}, "notices": {}}
    (found,) = findings("DPO004", some_data(per_example=2, ledger=told))
    assert "in 2 the two sides" in found.message
    near: dict[str, Any] = {"rows_read": 100, "skipped": {}, "notices": {"sides-nearly-equal": 4}}
    assert not findings("DPO004", some_data(per_example=2, ledger=near))
    near["notices"]["sides-nearly-equal"] = 5
    assert findings("DPO004", some_data(per_example=2, ledger=near))
    assert not findings("DPO004", some_data(per_example=1, ledger=told))
