"""Promise: rules on adapters know the model's modules, and judge no pattern."""

from dataclasses import replace
from typing import Any

import pytest

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake
from dynotune.audit.place import Place
from tests.audit.rules.facts import UNKNOWN, Default, a_job, findings

QWEN: dict[str, Any] = {"model_name_or_path": "Qwen/Qwen2.5-7B", "use_peft": True}


def test_modules_that_are_not_there() -> None:
    (found,) = findings("LOR001", a_job(**QWEN, lora_target_modules=["q_proj", "c_attn"]))
    assert found.stake.what is AtStake.RESULT
    (found,) = findings("LOR001", a_job(**QWEN, lora_target_modules="query_key_value"))
    assert found.stake.what is AtStake.STOPS


@pytest.mark.parametrize(
    "targets",
    [
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        ["self_attn.q_proj", "lm_head", "embed_tokens"],
        "all-linear",
        r".*\.(q|v)_proj",
        [r".*layers\.\d+\.c_attn"],
        [],
        None,
        UNKNOWN,
        Default(["c_attn"]),
    ],
)
def test_modules_that_are_there_or_cannot_be_told(targets: object) -> None:
    assert not findings("LOR001", a_job(**QWEN, lora_target_modules=targets))
    assert not findings("LOR001", a_job(**QWEN | {"model_name_or_path": "mine"}, lora_target_modules=["c_attn"]))


def test_adapters_that_nobody_makes() -> None:
    (found,) = findings("LOR002", a_job(use_peft=Default(False), lora_r=16))
    assert found.stake.what is AtStake.RESULT
    assert (found.remedy.changes[0].name, found.remedy.changes[0].value) == ("use_peft", True)
    (found,) = findings("LOR002", a_job(use_peft=Default(False), load_in_4bit=True))
    assert found.stake.what is AtStake.STOPS
    (found,) = findings("LOR002", a_job(use_peft=False, lora_r=16))
    assert found.stake.what is AtStake.CLARITY
    (found,) = findings("LOR002", a_job(Trainer.AXOLOTL, lora_r=16))
    assert found.remedy.changes[0].name == "adapter"


def another_kind() -> Job:
    """LLaMA-Factory's `finetuning_type: oft`."""
    job = a_job(Trainer.LLAMA_FACTORY, lora_r=16)
    oft = Setting("use_peft", False, Place("run.yaml", 1), given_as="finetuning_type", given_value="oft")
    return replace(job, settings={**job.settings, "use_peft": oft})


@pytest.mark.parametrize(
    "job",
    [
        a_job(use_peft=True, lora_r=16),
        a_job(use_peft=UNKNOWN, lora_r=16),
        a_job(use_peft=Default(False), lora_r=Default(16)),
        a_job(use_peft=Default(False), load_in_4bit=False),
        a_job(use_peft=Default(False), lora_r=16, file="train.py"),
        a_job(Trainer.AXOLOTL, use_peft=True, lora_r=16),
        another_kind(),
        a_job(Trainer.TRANSFORMERS, use_peft=False, lora_r=16),
    ],
)
def test_adapters_that_are_made(job: Any) -> None:
    assert not findings("LOR002", job)


def test_an_adapter_on_the_head() -> None:
    head = QWEN | {"lora_target_modules": ["q_proj", "lm_head"]}
    (found,) = findings("LOR003", a_job(**head, versions={"trl": "1.16.0"}))
    assert found.stake.what is AtStake.STOPS
    (found,) = findings("LOR003", a_job(Trainer.AXOLOTL, **head, use_liger_kernel=True))
    assert found.stake.what is AtStake.RESULT
    for job in (
        a_job(Trainer.AXOLOTL, **head),
        a_job(Trainer.TRL, Method.OTHER, **head, versions={"trl": "1.16.0"}),
        a_job(**QWEN, lora_target_modules=["q_proj"], versions={"trl": "1.16.0"}),
        a_job(**QWEN, lora_target_modules="all-linear", use_liger_kernel=True),
    ):
        assert not findings("LOR003", job)
