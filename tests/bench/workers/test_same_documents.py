"""Promise: arms that train on the same documents have done the same work, however their tokens are laid out."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.config.dpo import DPOConfig
from dynotune.results.result import Block
from dynotune.train.quiet import quiet
from tests.bench.workers.test_preferences import config, stage

__all__ = ["config"]

COUNTS: dict[str, Any] = {"first_step": 1, "steps": 1, "examples": 4, "documents": 8, "label_tokens": 300}


def test_a_beginning_computed_once_takes_nothing_off_what_an_arm_did(config: DPOConfig, tmp_path: Path) -> None:
    """Of two steps of four pairs, three arms: one by one, packed, with a common beginning once. Control: by tokens that were
    computed, the last one did less."""
    told: dict[str, Any] = {}
    with stage(config, tmp_path / "run") as on:
        for name, off in {"plain": "packed_execution", "packed": "shared_prompt", "shared": ""}.items():
            arm = config.replace(speedups={off: "off"} if off else {})
            on.stand(name, quiet(arm, tmp_path / "run"))
            told[name] = on.take(2, 2, discarded=0)
    assert len({one["sequence_tokens"] for one in told.values()}) == 1
    assert told["plain"]["real_tokens"] == told["packed"]["real_tokens"] == told["packed"]["sequence_tokens"]
    assert told["shared"]["real_tokens"] < told["packed"]["real_tokens"]


def test_a_rate_is_of_documents() -> None:
    """An arm that computes 700 of 1,000 tokens in 0.7 of the time is faster, not as fast."""
    each = Block(arm="a", pair=0, real_tokens=1000, processed_tokens=1024, sequence_tokens=1000, seconds=1.0, **COUNTS)
    once = each.model_copy(update={"arm": "b", "real_tokens": 700, "processed_tokens": 704, "seconds": 0.7})
    assert once.rate / each.rate == pytest.approx(1 / 0.7)
    old = each.model_copy(update={"sequence_tokens": 0})
    assert old.rate == each.rate, "of before it was told"
