"""Promise: what holds a foreign script back stands in its record, as the script has it; a clean one has none of it."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from dynotune.profile.precision import full_precision_share
from tests.profile.foreign.scripted import loop, one_thread, script

__all__ = ["one_thread"]

pytestmark = pytest.mark.long


def test_a_slow_loader() -> None:
    record = loop({"loader": 0.01})
    waits = [one.data_wait for one in record.timed]
    assert all(wait is not None and wait >= 4 * 0.01 for wait in waits)
    fast = [one.data_wait for one in loop().timed]
    assert median(wait for wait in fast if wait is not None) < 0.01


def test_shapes_that_compile_again() -> None:
    record = loop({"compiles": True}, warm_up=2)
    assert sum(one.compilations for one in record.timed) >= 3
    assert sum(one.compilations for one in loop().timed) == 0


def test_an_optimizer_that_is_not_fused() -> None:
    assert loop({"optimizer": {"foreach": False}}).optimizer == "AdamW (for-loop)"
    assert loop({"optimizer": {"foreach": True}}).optimizer == "AdamW (foreach)"


def test_a_cycle_of_slow_steps() -> None:
    record = loop({"cycle": [10, 0.2], "steps": 80}, steps=40)
    level = median(one.seconds for one in record.timed)
    slow = [one.number for one in record.timed if one.seconds > level + 0.15]
    assert len(slow) == 4
    assert {b - a for a, b in pairwise(slow)} == {10}


def test_full_precision_where_16_bits_were_asked_for(tmp_path: Path) -> None:
    wrong = script("hugging_face.py", json.dumps({"full_precision": True}), str(tmp_path))
    assert wrong.model.asked_precision == "bfloat16"
    assert full_precision_share(wrong) > 0.9
    right = script("hugging_face.py", json.dumps({"arguments": {"bf16": True}}), str(tmp_path))
    assert right.model.asked_precision == "bfloat16"
    assert full_precision_share(right) < 0.05


def test_padding_and_the_trainers_own_marks(tmp_path: Path) -> None:
    record = script("hugging_face.py", json.dumps({"fill": 0.3}), str(tmp_path))
    assert record.trainer == "transformers"
    real, processed = (
        sum(getattr(one, name) or 0 for one in record.timed) for name in ("real_tokens", "processed_tokens")
    )
    assert real / processed == pytest.approx(19 / 64)
    assert {one.number % 5 for one in record.timed if "log" in one.happened} == {1}  # behind the fifth update
    assert record.model.layers == 2
    assert record.traced[0].lengths == (19,) * 8


def test_trl_with_stories260k_unedited(shared: Path, tmp_path: Path) -> None:
    record = script("sft.py", str(shared / "tiny-lm" / "stories260K"), str(tmp_path))
    assert record.trainer == "trl"
    assert record.model.name == "LlamaForCausalLM"
    assert record.model.attention == "sdpa"
    assert len(record.timed) == 6
    assert all(
        one.real_tokens and one.label_tokens and one.real_tokens < (one.processed_tokens or 0) for one in record.timed
    )
    assert len(record.traced) == 1
    assert not list(tmp_path.glob("*.safetensors"))  # it was stopped, and what stands behind its training did not run


def test_trl_packed_attends_through_a_dense_mask(shared: Path, tmp_path: Path) -> None:
    from dynotune.speedups.absences import dense_masks

    record = script("sft.py", str(shared / "tiny-lm" / "stories260K"), str(tmp_path), "packed")
    (traced,) = record.traced
    assert dense_masks().found(traced.evidence("cpu")) is not None
    assert sum(traced.lengths) == traced.real_tokens == traced.processed_tokens
    assert len(traced.lengths) > 4
