"""Promise: rules on the optimizer, rates and batches leave ordinary settings alone."""

from typing import Any

import pytest

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, findings, some_data


@pytest.mark.parametrize(
    ("method", "lora", "rate"),
    [
        (Method.SFT, False, 1e-3),
        (Method.SFT, True, 1e-6),
        (Method.SFT, True, 1e-2),
        (Method.DPO, False, 5e-5),
        (Method.DPO, True, 5e-4),
        (Method.DPO, False, "1e-4"),
    ],
)
def test_unusual_rates(method: Method, lora: bool, rate: object) -> None:
    (found,) = findings(
        "OPT002", a_job(Trainer.TRL, method, learning_rate=rate, use_peft=lora, optim=Default("adamw_torch"))
    )
    assert found.stake.what is AtStake.CHOICE


@pytest.mark.parametrize(
    ("method", "values"),
    [
        (Method.SFT, {"learning_rate": 2e-5, "use_peft": False}),
        (Method.SFT, {"learning_rate": 2e-4, "use_peft": True}),
        (Method.DPO, {"learning_rate": 5e-6, "use_peft": True}),
        (Method.DPO, {"learning_rate": 1e-6, "use_peft": False}),
        (Method.SFT, {"learning_rate": 1e-2}),
        (Method.SFT, {"learning_rate": 1e-2, "use_peft": False, "optim": "sgd"}),
        (Method.SFT, {"learning_rate": 1e-3, "use_peft": False, "model_name_or_path": "HuggingFaceTB/SmolLM2-135M"}),
        (Method.SFT, {"learning_rate": Default(1e-2), "use_peft": False}),
        (Method.OTHER, {"learning_rate": 1e-2, "use_peft": False}),
    ],
)
def test_usual_rates(method: Method, values: dict[str, Any]) -> None:
    assert not findings("OPT002", a_job(Trainer.TRL, method, **{"optim": "adamw_torch"} | values))


def test_a_warm_up_that_never_ends() -> None:
    (found,) = findings("OPT003", a_job(warmup_steps=1000, max_steps=200))
    assert found.stake.what is AtStake.RESULT
    (found,) = findings("OPT003", a_job(warmup_ratio=0.6))
    assert found.stake.what is AtStake.CHOICE
    job = a_job(
        warmup_steps=100,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        packing=Default(False),
    )
    data = some_data(rows=800)
    (found,) = findings("OPT003", job, Project(".", [job], data=[data]))
    assert "2.0 times the run's 50 updates" in found.message


@pytest.mark.parametrize(
    "values",
    [
        {"warmup_steps": 50, "max_steps": 1000},
        {"warmup_steps": 1000},
        {"warmup_steps": 1000, "max_steps": UNKNOWN},
        {"warmup_steps": Default(1000), "max_steps": 200},
        {"warmup_ratio": 0.03, "max_steps": 200},
        {"warmup_steps": 0, "max_steps": 200},
        {"warmup_steps": 100, "max_steps": -1},
    ],
)
def test_a_warm_up_that_ends(values: dict[str, Any]) -> None:
    assert not findings("OPT003", a_job(**values))


TINY: dict[str, Any] = {
    "model_name_or_path": "HuggingFaceTB/SmolLM2-135M",
    "use_peft": False,
    "max_length": 512,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 32,
}


def test_micro_batches_that_are_too_small() -> None:
    (found,) = findings("OPT004", a_job(**TINY))
    rows, accumulation = (change.value for change in found.remedy.changes)
    assert rows * accumulation == 32
    assert rows > 1
    large = a_machine(gib=80)
    (more,) = findings("OPT004", a_job(**TINY), Project(".", environment=large))
    assert more.remedy.changes[0].value > rows


@pytest.mark.parametrize(
    "other",
    [
        {"gradient_accumulation_steps": 1},
        {"per_device_train_batch_size": 32},
        {"max_length": 4096},
        {"model_name_or_path": "Qwen/Qwen2.5-7B"},
        {"model_name_or_path": "mine"},
        {"max_length": UNKNOWN},
        {"packing": True},
        {"use_cpu": True},
    ],
)
def test_micro_batches_that_keep_the_card_busy(other: dict[str, Any]) -> None:
    assert not findings("OPT004", a_job(**TINY | other))


BATCH: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}


def test_batches_that_launchers_make() -> None:
    jobs = [a_job(**BATCH, num_processes=processes) for processes in (2, 8, 2)]
    (found,) = findings("OPT005", Project(".", jobs))
    assert "steps of 16 and of 64 rows" in found.message
    for others in (
        [a_job(**BATCH, num_processes=2), a_job(**BATCH, num_processes=2)],
        [a_job(**BATCH, num_processes=2), a_job(**BATCH | {"gradient_accumulation_steps": 1}, num_processes=4)],
        [a_job(**BATCH, num_processes=2), a_job(**BATCH, num_processes=UNKNOWN)],
        [a_job(**BATCH, num_processes=2), a_job(file="other.yaml", **BATCH, num_processes=8)],
        [a_job(**BATCH, num_processes=2), a_job(**BATCH)],
    ):
        assert not findings("OPT005", Project(".", others))
