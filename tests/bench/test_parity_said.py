"""Promise: what a bench says of parity before it times anything names what was compared, each line once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.command import _parity
from dynotune.config.sft import SFTConfig


def test_the_top_of_a_ladder_is_compared_twice_and_each_line_says_with_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same: Any = SimpleNamespace(state="same", first_difference="", why_not_checked="")
    monkeypatch.setattr("dynotune.bench.parity.gate.check", lambda *args, **more: same)
    pairs = [("top", "base", "whole"), ("low", "base", "step"), ("top", "low", "step")]
    pairings = [SimpleNamespace(arm=arm, against=against, role=role) for arm, against, role in pairs]
    rules, config = SimpleNamespace(budget_seconds=10.0), SFTConfig(use_cpu=True)
    asked: Any = SimpleNamespace(parity="gate", rules=rules, pairings=pairings, arm=lambda name: Arm(name, config))
    said: list[str] = []
    _parity(asked, tmp_path, said.append)
    assert said == ["top against base: updates same", "low: updates same", "top against low: updates same"]
