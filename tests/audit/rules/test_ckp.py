"""Promise: rules on checkpoints speak where work can be lost, and not of short runs."""

from dataclasses import replace
from typing import Any

import pytest

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.run import RunFacts
from tests.audit.rules.facts import UNKNOWN, Default, a_job, findings


def test_a_long_run_that_saves_nothing() -> None:
    (found,) = findings("CKP001", a_job(save_strategy="no", max_steps=5000))
    assert {change.name for change in found.remedy.changes} == {"save_strategy", "save_total_limit"}
    assert findings("CKP001", a_job(save_strategy="no", num_train_epochs=3, max_steps=Default(-1)))


@pytest.mark.parametrize(
    "values",
    [
        {"save_strategy": "no", "max_steps": 100},
        {"save_strategy": "no"},
        {"save_strategy": "no", "num_train_epochs": 1},
        {"save_strategy": "no", "num_train_epochs": Default(3.0)},
        {"save_strategy": Default("no"), "max_steps": 5000},
        {"save_strategy": "steps", "max_steps": 5000},
        {"save_strategy": UNKNOWN, "max_steps": 5000},
    ],
)
def test_a_run_that_saves_or_is_short(values: dict[str, Any]) -> None:
    assert not findings("CKP001", a_job(**values))


def test_checkpoints_that_cannot_be_resumed() -> None:
    assert findings("CKP002", a_job(save_only_model=True, resume_from_checkpoint="out/checkpoint-10"))
    for values in (
        {"save_only_model": True},
        {"save_only_model": True, "resume_from_checkpoint": False},
        {"save_only_model": True, "resume_from_checkpoint": UNKNOWN},
        {"save_only_model": False, "resume_from_checkpoint": True},
    ):
        assert not findings("CKP002", a_job(**values))


BEST: dict[str, Any] = {
    "load_best_model_at_end": True,
    "save_strategy": "steps",
    "eval_strategy": "steps",
    "save_steps": 250,
    "eval_steps": 100,
}


def test_a_best_that_is_not_saved() -> None:
    assert findings("CKP005", a_job(**BEST))
    assert findings("CKP005", a_job(**BEST | {"save_strategy": "epoch"}))
    for other in (
        {"save_steps": 300},
        {"load_best_model_at_end": False},
        {"save_strategy": "best"},
        {"eval_steps": UNKNOWN},
        {"save_strategy": "epoch", "eval_strategy": "epoch"},
    ):
        values: dict[str, Any] = BEST | other
        assert not findings("CKP005", a_job(**values))


def test_pickled_weights() -> None:
    (found,) = findings("CKP051", a_job(save_safetensors=False))
    assert found.remedy.changes[0].value is True
    for value in (True, Default(False), UNKNOWN):
        assert not findings("CKP051", a_job(save_safetensors=value))
    assert not findings("CKP051", a_job(Trainer.DYNOTUNE, save_safetensors=False))


WHOLE = {"model.safetensors": 9, "optimizer.pt": 9, "trainer_state.json": 9}


def left(**files: int) -> RunFacts:
    """A run of two checkpoints, the first of them whole. A size of 0: an empty file; -1: none."""
    last = {name: size for name, size in (WHOLE | files).items() if size >= 0}
    named = {f"checkpoint-9/{name}": 9 for name in WHOLE} | {
        f"checkpoint-10/{name}": size for name, size in last.items()
    }
    return RunFacts("out", "transformers", [], files=named)


def test_a_checkpoint_that_is_not_whole() -> None:
    (found,) = findings("CKP002", left(**{"optimizer.pt": -1}))
    assert "`checkpoint-10`, the last of 2, has no optimizer state" in found.message
    (found,) = findings("CKP002", left(**{"model.safetensors": 0}))
    assert "no weights" in found.message
    (found,) = findings("CKP002", left(**{"trainer_state.json": -1}))
    assert "stops" in found.message


def test_checkpoints_that_are_whole() -> None:
    assert not findings("CKP002", left())
    deepspeed = {"model.safetensors": -1, "optimizer.pt": -1, "global_step10/mp_rank_00_model_states.pt": 9}
    assert not findings("CKP002", left(**deepspeed))
    assert not findings("CKP002", RunFacts("out", "transformers", []))
    assert not findings("CKP002", replace(left(**{"optimizer.pt": -1}), trainer="Dynotune"))
