"""Promise: every arm has the last loss that it was seen to have, and the result says of which weights it is."""

from pathlib import Path

import pytest

from dynotune.bench.judging.conclude import WEIGHTS
from dynotune.bench.running import measure as ours
from dynotune.bench.showing.page import bench_page
from dynotune.results.result import Result, Tier
from tests.bench import made
from tests.bench.running.test_budget import concluded, measured, without_processes

__all__ = ["without_processes"]


@pytest.mark.parametrize("tier", Tier)
def test_it_is_of_the_last_block_wherever_arms_live(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: of a bench that ended before its blocks it is that of the warm-up; of an arm that was never warm there is
    none, and nothing is said of it."""
    monkeypatch.setattr(ours, "tier_for", lambda *_: (tier, "it was asked for"))
    result = concluded(measured(tmp_path, None))
    assert result.tier is tier
    for arm in result.arms:
        assert (arm.final_loss, arm.final_loss_of) == (1.0, f"its last block, {WEIGHTS[tier]}")
    assert f"Final loss: that of its last block, {WEIGHTS[tier]}." in bench_page(result)
    first, second = concluded(measured(tmp_path, 5.0)).arms
    assert (first.final_loss, first.final_loss_of) == (2.5, f"its warm-up, {WEIGHTS[tier]}")
    assert (second.final_loss, second.final_loss_of) == (None, "")


def test_arms_whose_losses_are_of_different_times_are_told_apart() -> None:
    """Control: of results of before, which do not tell, nothing is claimed."""
    a, b = made.ab().arms
    two = made.ab(
        arms=(
            a.model_copy(update={"final_loss_of": "its last block, of weights"}),
            b.model_copy(update={"final_loss_of": "its warm-up, of weights"}),
        )
    )
    said = "Final loss: that of its last block, of weights (a.yaml); its warm-up, of weights (b.yaml)."
    assert said in bench_page(Result.model_validate_json(two.model_dump_json()))
    assert "Final loss: that of" not in bench_page(made.ab())
