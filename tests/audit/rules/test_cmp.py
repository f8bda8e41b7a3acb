"""Promise: rules on fused and compiled code say what a switch does, and does not do."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.audit.facts.job import Method, Trainer
from tests.audit.made_up import audited
from tests.audit.rules.facts import UNKNOWN, a_job, findings

TRL = {"trl": "1.16.0"}


def test_liger_without_its_loss() -> None:
    (found,) = findings("CMP001", a_job(use_liger_kernel=True, use_peft=True, versions=TRL))
    assert "save memory and no time" in found.message
    (found,) = findings("CMP001", a_job(Trainer.TRL, Method.DPO, use_liger_kernel=True, versions=TRL))
    assert "reference model" in found.message
    for job in (
        a_job(use_liger_kernel=True, versions={"trl": "0.15.2"}),
        a_job(use_liger_kernel=True),
        a_job(use_liger_kernel=False, versions=TRL),
        a_job(Trainer.AXOLOTL, use_liger_kernel=True, versions=TRL),
        a_job(Trainer.TRL, Method.OTHER, use_liger_kernel=True, versions=TRL),
    ):
        assert not findings("CMP001", job)


def test_liger_without_the_model() -> None:
    (found,) = findings("CMP001", a_job(use_liger_kernel=True, model_name_or_path="openai-community/gpt2"))
    assert "gpt2" in found.message
    for model in ("Qwen/Qwen2.5-0.5B", "someone/something", UNKNOWN):
        assert not findings("CMP001", a_job(use_liger_kernel=True, model_name_or_path=model))
    assert not findings("CMP001", a_job(model_name_or_path="gpt2"))


def test_compiling_for_each_shape() -> None:
    assert findings("CMP003", a_job(torch_compile=True))
    job = a_job(Trainer.TRL, Method.DPO, torch_compile=True, gradient_checkpointing=True)
    assert "eight" in findings("CMP003", job)[0].message


@pytest.mark.parametrize(
    "job",
    [
        a_job(torch_compile=False),
        a_job(torch_compile=UNKNOWN),
        a_job(Trainer.DYNOTUNE, torch_compile=True),
        a_job(Trainer.LLAMA_FACTORY, torch_compile=True, packing=True),
        a_job(torch_compile=True, use_cpu=True),
    ],
)
def test_compiling_once(job: Any) -> None:
    assert not findings("CMP003", job)


def test_what_a_later_release_does_is_not_said_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """TRL switches Liger's loss off from 1.16 on; a project that pins 1.0 runs it."""
    config = "model_name_or_path: m\ndataset_name: d\nuse_peft: true\nuse_liger_kernel: true\n"
    said = {
        pin: {
            one.code
            for one in audited(tmp_path / pin, {"sft.yaml": config, "requirements.txt": f"trl{pin}\n"}).findings
        }
        for pin in ("==1.0.0", "<1.16", "==1.16.0")
    }
    assert ["CMP001" in said[pin] for pin in said] == [False, False, True]
