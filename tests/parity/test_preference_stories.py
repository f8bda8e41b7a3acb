"""Promise: a real model learns preferences as it does under TRL: the same losses, the same held-out reward accuracy."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import preference_stories


@pytest.mark.long
def test_held_out_pairs_are_told_apart_as_under_trl(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark, over 10 steps."""
    told = ["--shared", str(shared), "--out", str(tmp_path), "--steps", "10", "--held-out", "32"]
    monkeypatch.setattr(sys, "argv", ["preference_stories.py", *told])
    preference_stories.main()  # whether accuracy rises is not asked of so few steps
    result = json.loads((tmp_path / "preference_stories.json").read_text())
    assert len(result["trl"]["train"]) == len(result["dynotune"]["train"]) == 10
    assert preference_stories.agree(result)
    losses = list(result["dynotune"]["held_out"]["loss"].values())
    assert len(set(losses)) == preference_stories.POINTS  # it moves
    assert (tmp_path / "preference_stories.svg").is_file()


def side(accuracies: list[float], losses: list[float]) -> dict[str, Any]:
    held_out = {"rewards/accuracies": dict(enumerate(accuracies)), "loss": dict.fromkeys(range(len(accuracies)), 0.6)}
    return {"train": losses, "held_out": held_out}


@pytest.mark.parametrize(
    ("accuracies", "losses", "passes"),
    [
        ([0.55, 0.65], [0.69, 0.5], True),
        ([0.65, 0.65], [0.69, 0.5], False),
        ([0.30, 0.45], [0.69, 0.5], False),
        ([0.55, 0.68], [0.69, 0.5], False),
        ([0.55, 0.65], [0.69, 0.5001], False),
    ],
)
def test_the_benchmark_can_fail(accuracies: list[float], losses: list[float], passes: bool) -> None:
    """Negative control: no rise, a rise below chance, another accuracy than TRL's, another loss."""
    theirs = side([0.55, 0.65] if accuracies[0] == 0.55 else accuracies, [0.69, 0.5])
    result: dict[str, Any] = {"held_out_pairs": 160, "dynotune": side(accuracies, losses), "trl": theirs}
    result["largest_gap"] = preference_stories.compare(result)
    assert preference_stories.holds(result) == passes
