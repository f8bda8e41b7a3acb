"""Promise: a gate holds an arm against the same work alone, and names the keys in which work differs."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.bench.keeping.between import Outcome, gate, said_beside
from dynotune.bench.keeping.same_work import other_work
from dynotune.cli import run
from dynotune.config.checking.preference import BY_BATCH
from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.results.history import write_result
from dynotune.results.result import Noise, Result
from tests.bench import made

QUIET = Noise(log_ratios=(0.0, 0.0), floor=0.001)
WHOLE = SFTConfig(model_name_or_path="/models/qwen", dataset_name="chats.jsonl").public_dict()


def with_keys(**keys: Any) -> Result:
    """`made.ab()` with these in the configuration of both arms, whatever its operating point says."""
    result = made.ab(noise=QUIET)
    arms = tuple(arm.model_copy(update={"config": {**WHOLE, **keys}}) for arm in result.arms)
    return result.model_copy(update={"arms": arms})


BASE = with_keys()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"max_length": 96}, "max_length 1024 and 96"),
        ({"learning_rate": 1e-3}, "learning_rate 2e-05 and 0.001"),
        ({"test_split_size": 0.1}, "test_split_size null and 0.1"),
        ({"per_device_train_batch_size": 2}, "per_device_train_batch_size 8 and 2"),
        (
            {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
            "gradient_accumulation_steps 1 and 4, per_device_train_batch_size 8 and 4",
        ),
        ({"global_batch_size": 16}, "global_batch_size null and 16"),
        ({"global_batch_size": "of a newer version"}, "global_batch_size null and of a newer version"),
        ({"model_name_or_path": "/models/llama"}, "model_name_or_path qwen and llama"),
        ({"optim": "sgd"}, "optim adamw_torch_fused and sgd"),
        ({"key_of_a_newer_version": 1}, "key_of_a_newer_version null and 1"),
    ],
)
def test_other_work_under_the_same_operating_point(keys: dict[str, Any], said: str) -> None:
    """The line of the operating point is the same in both: it is the keys that tell."""
    judged = gate(BASE, with_keys(**keys), 0.03)
    assert {one.outcome for one in judged} == {Outcome.NOT_COMPARABLE}
    assert {one.text for one in judged} == {f"at another operating point: {said}"}
    assert said_beside([BASE, with_keys(**keys)]) == [f"{BASE.name}: other work of a.yaml, b.yaml: {said}"]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"attn_implementation": "eager", "speedups": {"fused_lora": "off"}, "activation_memory": "full"},
        {"optim": "adamw_torch"},
        {"output_dir": "elsewhere", "logging_steps": 5.0, "run_name": "again", "save_steps": 10.0},
        {"model_name_or_path": "/home/somebody/models/qwen"},
        {"eval_strategy": "steps", "eval_dataset_name": "held-out.jsonl", "per_device_eval_batch_size": 2},
        {"num_train_epochs": 1.0, "max_steps": 40},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"global_batch_size": 8},
    ],
    ids=[
        "nothing",
        "execution",
        "a name of the same optimizer",
        "kept",
        "where it lies",
        "evaluations",
        "length",
        "the split of a step",
        "as many examples by another key",
    ],
)
def test_the_same_work(keys: dict[str, Any]) -> None:
    """Control: what a bench does not do, and how work is executed, may differ. That is what a gate is for."""
    assert {one.outcome for one in gate(BASE, with_keys(**keys), 0.03)} == {Outcome.FINE}
    assert said_beside([BASE, with_keys(**keys)]) == []


def test_a_key_that_the_older_version_did_not_have_is_no_difference_at_its_default() -> None:
    """Control: at another value it is one."""
    arms = tuple(
        arm.model_copy(update={"config": {k: v for k, v in arm.config.items() if k != "use_dora"}}) for arm in BASE.arms
    )
    older = BASE.model_copy(update={"arms": arms})
    assert other_work(older, BASE, "a.yaml") == other_work(BASE, older, "a.yaml") == ""
    assert other_work(older, with_keys(use_dora=True), "a.yaml") == "use_dora false and true"


def test_examples_a_step_are_those_of_all_devices() -> None:
    """8 on one device are 4 on each of two. Control: 4 on each of four are 16."""
    two = with_keys(per_device_train_batch_size=4).model_copy(update={"devices": 2})
    assert other_work(BASE, two, "a.yaml") == ""
    four = with_keys(per_device_train_batch_size=4).model_copy(update={"devices": 4})
    assert other_work(BASE, four, "a.yaml") == "per_device_train_batch_size 8 and 4"


def test_where_a_loss_goes_by_the_batch_its_split_is_other_work() -> None:
    """Control: a loss of each pair."""
    whole = DPOConfig(model_name_or_path="/models/qwen", dataset_name="pairs.jsonl").public_dict()

    def of(**keys: Any) -> Result:
        result = made.ab(noise=QUIET, work="dpo of Qwen2ForCausalLM under LORA")
        arms = tuple(arm.model_copy(update={"config": {**whole, **keys}}) for arm in result.arms)
        return result.model_copy(update={"arms": arms})

    split = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    said = "per_device_train_batch_size 8 and 4"
    assert other_work(of(loss_type=["nca_pair"]), of(loss_type=["nca_pair"], **split), "a.yaml") == ""
    for by_batch in BY_BATCH:
        assert other_work(of(loss_type=[by_batch]), of(loss_type=[by_batch], **split), "a.yaml") == said


def test_one_arm_may_do_other_work_and_the_other_not() -> None:
    first, second = BASE.arms
    other = second.model_copy(update={"config": {**WHOLE, "max_length": 96}})
    judged = gate(BASE, BASE.model_copy(update={"arms": (first, other)}), 0.03)
    assert [one.outcome for one in judged] == [Outcome.FINE, Outcome.NOT_COMPARABLE]


def test_many_keys_are_counted_and_text_of_others_is_escaped() -> None:
    keys = {f"lora_{i}": "\x1b[2J" + "x" * 200 for i in range(9)}
    said = other_work(BASE, with_keys(**keys), "a.yaml")
    assert said.endswith(" and 3 more keys")
    assert "\x1b" not in said
    assert len(said) < 500


def test_the_command_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As the reviewer ran it: examples cut to 96 tokens. Control: the same bench passes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    for name, one in {"old": BASE, "new": with_keys(max_length=96)}.items():
        write_result(one, tmp_path / f"{name}.json")
    assert run(["bench", "gate", "old.json", "new.json"]) == 3
    assert "NOT COMPARABLE, at another operating point: max_length 1024 and 96" in capsys.readouterr().out
    assert run(["bench", "gate", "old.json", "old.json"]) == 0
