"""Promise: what holds a foreign script back is named by its profile; a clean script is called clean."""

import json
import sys
from pathlib import Path

import pytest

from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.foreign.command import Options, profile
from dynotune.profile.foreign.protocol import Asked
from dynotune.profile.records.precision import full_precision_share
from dynotune.profile.records.record import Record
from tests.profile.foreign.scripted import SCRIPTS, loop, one_thread, script

__all__ = ["one_thread"]

pytestmark = pytest.mark.long


def names(record: Record) -> list[str]:
    return [one.name for one in analyse(record).found]


def sentence(record: Record, name: str) -> str:
    found = analyse(record).found
    assert name in [one.name for one in found], [one.sentence for one in found]
    return next(one.sentence for one in found if one.name == name)


def test_a_clean_script_is_called_clean() -> None:
    found = analyse(loop(steps=12))
    assert found.clean, [one.sentence for one in found.found]


def test_a_value_that_is_read_in_the_loop_is_named_with_its_line() -> None:
    line = next(i for i, text in enumerate((SCRIPTS / "loop.py").read_text().splitlines(), 1) if "THE READ" in text)
    said = sentence(loop({"reads": True}), "host-reads")
    assert f"1 value a step goes from a tensor to Python (`.item()`) (at loop.py:{line} x 1)" in said


def test_a_slow_loader() -> None:
    record = loop({"loader": 0.1})
    waits = [one.data_wait for one in record.timed]
    assert all(wait is not None and wait >= 0.1 for wait in waits)
    assert names(record)[0] == "slow-loader"


def test_shapes_that_compile_again() -> None:
    record = loop({"compiles": True}, warm_up=2)
    assert sum(one.compilations for one in record.timed) >= 3
    assert names(record)[0] == "recompiling"


def test_shapes_that_compile_until_dynamo_gives_up() -> None:
    """With the warm-up's own rule, which waits until nothing is compiled: by then all of it runs as without."""
    record = loop({"compiles": True}, warm_up=None)
    assert sum(one.compilations for one in record.timed) == 0
    assert record.warm_up.limits_met == 1
    assert "gave up a function" in sentence(record, "compile-limit")


def test_a_model_that_is_compiled_once_is_clean() -> None:
    """The control, with a graph for each of two lengths."""
    record = loop({"compiles": True, "lengths": 2}, warm_up=None, steps=12)
    assert record.warm_up.limits_met == 0
    assert analyse(record).clean, [one.sentence for one in analyse(record).found]


def test_an_optimizer_that_is_not_fused() -> None:
    record = loop({"optimizer": {"foreach": False}})
    assert record.optimizer == "AdamW (for-loop)"
    assert "unfused-optimizer" in names(record)


def test_a_cycle_of_slow_steps() -> None:
    """Five cycles and more of 50 steps, which is what it takes to call it one."""
    record = loop({"cycle": [50, 0.3], "steps": 330}, steps=300)
    slow = [one.number for one in record.timed if one.seconds >= 0.3]
    assert {number % 50 for number in slow} >= {2}  # behind the 51st batch, the 101st ...: in the step after it
    assert "every 50 steps one takes" in sentence(record, "periodic-slow-down")


def test_full_precision_where_16_bits_were_asked_for(tmp_path: Path) -> None:
    wrong = script("hugging_face.py", json.dumps({"full_precision": True}), str(tmp_path))
    assert wrong.model.asked_precision == "bfloat16"
    assert full_precision_share(wrong) > 0.9
    assert "full-precision-products" in names(wrong)
    right = script("hugging_face.py", json.dumps({"arguments": {"bf16": True}}), str(tmp_path))
    assert right.model.asked_precision == "bfloat16"
    assert full_precision_share(right) < 0.05
    assert "full-precision-products" not in names(right)


def test_padding_and_the_trainers_own_marks(tmp_path: Path) -> None:
    record = script("hugging_face.py", json.dumps({"fill": 0.3}), str(tmp_path))
    assert record.trainer == "transformers"
    real, processed = (
        sum(getattr(one, name) or 0 for one in record.timed) for name in ("real_tokens", "processed_tokens")
    )
    assert real / processed == pytest.approx(19 / 64)
    assert "fill 30 %" in sentence(record, "low-fill")
    assert "to leave padding out" in sentence(record, "padding-mask")
    assert {one.number % 5 for one in record.timed if "log" in one.happened} == {1}  # behind the fifth update
    assert record.model.layers == 2
    assert record.traced[0].lengths == (19,) * 8
    if Path("/proc/self/mounts").exists():
        assert {"working folder", "output", "cache"} <= set(record.environment.file_systems)


def test_trl_with_stories260k_unedited(shared: Path, tmp_path: Path) -> None:
    record = script("sft.py", str(shared / "tiny-lm" / "stories260K"), str(tmp_path))
    assert (record.trainer, record.method) == ("trl", "sft")
    assert record.model.name == "LlamaForCausalLM"
    assert record.model.attention == "sdpa"
    assert len(record.timed) == 6
    assert all(
        one.real_tokens and one.label_tokens and one.real_tokens < (one.processed_tokens or 0) for one in record.timed
    )
    assert len(record.traced) == 1
    assert not list(tmp_path.glob("*.safetensors"))  # it was stopped, and what stands behind its training did not run


def test_trl_packed_attends_through_a_dense_mask(shared: Path, tmp_path: Path) -> None:
    record = script("sft.py", str(shared / "tiny-lm" / "stories260K"), str(tmp_path), "packed")
    (traced,) = record.traced
    assert "to keep documents apart that lie side by side" in sentence(record, "dense-mask")
    assert sum(traced.lengths) == traced.real_tokens == traced.processed_tokens
    assert len(traced.lengths) > 4


def test_ranks_of_a_launcher_stop_at_the_same_step_and_a_slow_one_is_felt() -> None:
    command = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        str(SCRIPTS / "ranks.py"),
        "slow",
    )
    record = profile(Options(command, Asked(steps=6, warm_up=3), quiet=True), lambda text: None)
    assert record.environment.world == 2
    assert [one.number for one in record.timed] == [5, 6, 7, 8, 9, 10]
    assert "2 ranks were observed; what is shown is of rank 0." in record.notes
    assert not any("ended with" in note for note in record.notes)
    assert names(record)[0] == "ranks-wait"
    assert "rank 1 is the slowest: its own work takes" in sentence(record, "ranks-wait")
    assert record.own_seconds[1] > record.own_seconds[0]
