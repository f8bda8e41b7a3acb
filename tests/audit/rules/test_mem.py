"""Promise: rules on memory estimate on the high side, and say where they cannot."""

from typing import Any

import pytest

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.models import known
from dynotune.audit.rules.mem001_checkpointing_to_spare import estimate
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, findings, not_checked, some_data

CHECKPOINTED: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-7B",
    "use_peft": True,
    "gradient_checkpointing": Default(True),
    "per_device_train_batch_size": 2,
    "max_length": 1024,
}


def test_the_estimate_is_above_what_was_measured() -> None:
    """TRL's 7B LoRA on an H200: 76.0 GiB at 6,110 tokens, 23.1 at two documents, 67.8 at 8,192 tokens packed."""
    model = known("Qwen/Qwen2.5-7B")
    assert model is not None
    for tokens, measured in ((6110, 76.0), (258, 23.1), (8192, 67.8)):
        assert estimate(model, tokens, True) / 2**30 > measured


def test_checkpointing_with_memory_to_spare() -> None:
    card = a_machine(gib=140)
    (found,) = findings("MEM001", card, Project(".", [a_job(**CHECKPOINTED)], environment=card))
    assert "the trainer's default" in found.message
    assert "140 GiB" in found.message
    assert not found.remedy.changes


@pytest.mark.parametrize(
    ("gib", "other"),
    [
        (24, {}),
        (80, {"per_device_train_batch_size": 16}),
        (140, {"use_peft": False}),
        (140, {"gradient_checkpointing": False}),
        (140, {"gradient_checkpointing": UNKNOWN}),
    ],
)
def test_checkpointing_that_is_needed(gib: int, other: dict[str, Any]) -> None:
    card = a_machine(gib=gib)
    assert not findings("MEM001", card, Project(".", [a_job(**CHECKPOINTED | other)], environment=card))


def test_what_cannot_be_estimated_is_not_checked() -> None:
    card = a_machine()
    for other in ({"model_name_or_path": "mine"}, {"max_length": UNKNOWN}):
        project = Project(".", [a_job(**CHECKPOINTED | other)], environment=card)
        assert not findings("MEM001", card, project)
        assert not_checked("MEM001", card, project)


def test_real_lengths_count_where_they_are_known() -> None:
    card = a_machine(gib=80)
    job = a_job(**CHECKPOINTED | {"max_length": 8192})
    assert not findings("MEM001", card, Project(".", [job], environment=card))
    data = some_data(lengths=[100, 200])
    assert findings("MEM001", card, Project(".", [job], data=[data], environment=card))


def test_the_old_implementation() -> None:
    kwargs = {"use_reentrant": True, "every": 2}
    (found,) = findings(
        "MEM002", a_job(gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs, num_processes=2)
    )
    assert found.remedy.changes[0].value == {"use_reentrant": False, "every": 2}
    assert "twice" in found.message
    for job in (
        a_job(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}),
        a_job(gradient_checkpointing=True, gradient_checkpointing_kwargs=UNKNOWN),
        a_job(gradient_checkpointing=False, gradient_checkpointing_kwargs=kwargs),
        a_job(gradient_checkpointing=True),
    ):
        assert not findings("MEM002", job)


LOGITS: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-7B",
    "per_device_train_batch_size": 4,
    "max_length": 4096,
}


def test_logits_in_memory() -> None:
    (found,) = findings("MEM003", a_job(Trainer.LLAMA_FACTORY, keys={"do_train": True}, **LOGITS))
    assert found.stake.high == pytest.approx(4 * 4096 * 151_936 * 10 / 2**30)
    (pairs,) = findings("MEM003", a_job(Trainer.LLAMA_FACTORY, Method.DPO, keys={"do_train": True}, **LOGITS))
    assert found.stake.high is not None
    assert pairs.stake.high == pytest.approx(2 * found.stake.high)
    assert findings("MEM003", a_job(Trainer.TRL, versions={"trl": "0.19.1"}, **LOGITS))


@pytest.mark.parametrize(
    "job",
    [
        a_job(Trainer.LLAMA_FACTORY, keys={"do_train": True}, **LOGITS, use_liger_kernel=True),
        a_job(Trainer.LLAMA_FACTORY, keys={"do_train": True}, **LOGITS | {"max_length": 512}),
        a_job(Trainer.LLAMA_FACTORY, keys={"do_train": True}, **LOGITS | {"model_name_or_path": "mine"}),
        a_job(Trainer.TRL, versions={"trl": "1.16.0"}, **LOGITS),
        a_job(Trainer.TRL, **LOGITS),
        a_job(Trainer.LLAMA_FACTORY, keys={"do_predict": True}, **LOGITS),
        a_job(Trainer.AXOLOTL, **LOGITS, keys={"plugins": ["axolotl.integrations.liger.LigerPlugin"]}),
        a_job(Trainer.DYNOTUNE, **LOGITS),
    ],
)
def test_no_logits_in_memory(job: Any) -> None:
    assert not findings("MEM003", job)


def test_logits_are_measured_against_the_card() -> None:
    job = a_job(Trainer.LLAMA_FACTORY, keys={"do_train": True}, **LOGITS | {"max_length": 2048})
    assert not findings("MEM003", job)
    small, large = a_machine(gib=24), a_machine(gib=140)
    assert findings("MEM003", job, Project(".", [job], environment=small))
    assert not findings("MEM003", job, Project(".", [job], environment=large))


def test_offloading_what_fits() -> None:
    values: dict[str, Any] = {
        "model_name_or_path": "TinyLlama/TinyLlama_v1.1",
        "num_processes": 8,
        "zero_stage": 3,
        "distributed_type": "DEEPSPEED",
        "offload_param_device": "cpu",
        "offload_optimizer_device": "cpu",
    }
    (found,) = findings("MEM004", a_job(**values))
    assert "2.0 GiB a GPU" in found.message
    assert len(found.also) == 1
    for other in (
        {"num_processes": 1},
        {"num_processes": UNKNOWN},
        {"zero_stage": 2},
        {"model_name_or_path": "Qwen/Qwen2.5-72B"},
        {"model_name_or_path": "me/mine"},
        {"offload_param_device": "none", "offload_optimizer_device": "none"},
    ):
        assert not findings("MEM004", a_job(**values | other))
