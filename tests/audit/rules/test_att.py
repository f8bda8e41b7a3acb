"""Promise: rules on attention find what is so, and are silent where it is not or cannot be told."""

from typing import Any

import pytest

from dynotune.audit.facts.environment import Package
from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Level, Risk
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, findings, not_checked

PACKED: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-7B",
    "packing": True,
    "max_length": 2048,
    "per_device_train_batch_size": 8,
}


@pytest.mark.parametrize("attention", [{}, {"attn_implementation": "sdpa"}, {"attn_implementation": Default(None)}])
def test_packed_rows_under_a_dense_mask(attention: dict[str, Any]) -> None:
    (found,) = findings("ATT001", a_job(**PACKED, **attention))
    assert "16,384 x 16,384 (256 MiB)" in found.message
    assert found.remedy.risk is Risk.OPERATIONAL
    assert not found.remedy.changes


@pytest.mark.parametrize(
    "other",
    [
        {"attn_implementation": "flash_attention_2"},
        {"attn_implementation": "kernels-community/flash-attn2"},
        {"attn_implementation": "flex_attention"},
        {"packing": False},
        {"packing_strategy": "wrapped"},
        {"max_length": UNKNOWN},
        {"max_length": 128},
    ],
)
def test_no_dense_mask(other: dict[str, Any]) -> None:
    assert not findings("ATT001", a_job(**PACKED | other))


def test_unknown_attention_is_not_checked() -> None:
    for job in (a_job(**PACKED | {"attn_implementation": UNKNOWN}), a_job(**PACKED | {"model_name_or_path": UNKNOWN})):
        assert not findings("ATT001", job)
        assert not_checked("ATT001", job)


def test_the_change_is_made_only_where_flash_attention_was_seen_to_work() -> None:
    works = a_machine(packages={"flash-attn": Package("flash-attn", "2.8.3", True)})
    (found,) = findings("ATT001", a_job(**PACKED), Project(".", environment=works))
    assert found.remedy.risk is Risk.SAFE
    assert found.remedy.changes[0].value == "flash_attention_2"


FLASH: dict[str, Any] = {"model_name_or_path": "m", "attn_implementation": "flash_attention_2"}


def test_a_package_that_does_not_work_is_told_from_a_missing_one() -> None:
    broken = Package("flash-attn", "2.8.3", False, "import failed: ImportError: undefined symbol")
    job = a_job(**FLASH)
    machine = a_machine(packages={"flash-attn": broken})
    (found,) = findings("ATT002", machine, Project(".", [job], environment=machine))
    assert "undefined symbol" in found.message
    assert "not installed" not in found.message
    assert found.evidence.level is Level.PROBED
    machine = a_machine()
    (found,) = findings("ATT002", machine, Project(".", [job], environment=machine))
    assert "is not installed" in found.message
    assert found.stake.what is AtStake.STOPS
    (quiet,) = findings("ATT002", machine, Project(".", [a_job(Trainer.LLAMA_FACTORY, **FLASH)], environment=machine))
    assert "trains with sdpa" in quiet.message


@pytest.mark.parametrize(
    "machine",
    [
        a_machine(packages={"flash-attn": Package("flash-attn", "2.8.3", True)}),
        a_machine(packages={"flash-attn": Package("flash-attn", "2.8.3")}),
        a_machine(packages={"kernels": Package("kernels", "0.16.0")}),
        a_machine(gpus=0),
    ],
)
def test_a_package_that_may_work(machine: Any) -> None:
    assert not findings("ATT002", machine, Project(".", [a_job(**FLASH)], environment=machine))
    assert not findings("ATT002", a_machine(), Project(".", [a_job(attn_implementation="sdpa")]))


FP32: dict[str, Any] = FLASH | {"dtype": "float32", "bf16": False, "fp16": Default(False)}


def test_flash_attention_in_float32() -> None:
    (found,) = findings("ATT005", a_job(**FP32))
    assert found.remedy.changes[0].name == "bf16"


@pytest.mark.parametrize(
    "other",
    [
        {"bf16": True},
        {"bf16": UNKNOWN},
        {"dtype": "bfloat16"},
        {"dtype": UNKNOWN},
        {"mixed_precision": "bf16"},
        {"attn_implementation": "sdpa"},
        {"use_cpu": True},
    ],
)
def test_flash_attention_that_runs(other: dict[str, Any]) -> None:
    assert not findings("ATT005", a_job(**FP32 | other))


def test_eager_attention() -> None:
    (found,) = findings(
        "ATT004", a_job(model_name_or_path="Qwen/Qwen2.5-7B", attn_implementation="eager", max_length=4096)
    )
    assert found.remedy.changes[0].value == "sdpa"
    for other in ({"attn_implementation": "sdpa"}, {"attn_implementation": Default("eager")}):
        assert not findings("ATT004", a_job(model_name_or_path="m", **other))
    assert not findings("ATT004", a_job(model_name_or_path="google/gemma-2-9b", attn_implementation="eager"))
