"""Promise: what any rank sees of itself is said once, with its number, and no rank waits for that in a step."""

import json
from pathlib import Path
from typing import Any

import pytest

from dynotune.measure.signs.record import Sign
from dynotune.parallel.ranks import Ranks
from dynotune.train.telling.notices import Heard, Notices, by_name
from tests.parallel import seen
from tests.parallel.processes import on_ranks


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    file = run / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize(("victims", "said"), [((1,), "warning: rank 1: data-bound: "), ((0, 1), "data-bound: ")])
def test_a_loader_that_is_slow_on_any_rank_is_said_once(tmp_path: Path, victims: tuple[int, ...], said: str) -> None:
    on_ranks(2, seen.slow_loader, tmp_path, victims, folder=tmp_path)
    out = [(tmp_path / f"out-{rank}").read_text() for rank in (0, 1)]
    assert out[0].count("data-bound: ") == 1
    assert said in out[0]
    kept = [one for one in lines(tmp_path / "run", "warnings.jsonl") if one["name"] == "data-bound"]
    assert sorted(one["rank"] for one in kept) == list(victims)
    last = [row for row in lines(tmp_path / "run", "metrics.jsonl") if "wall_seconds" in row][-1]
    assert last["ranks/data_wait_min"] <= last["data_wait"] <= last["ranks/data_wait_max"]
    if victims == (1,):
        assert last["ranks/data_wait_min"] == last["data_wait"] < last["ranks/data_wait_max"]
    assert last["ranks/host_rss_gib_min"] > 0


def test_ranks_without_a_cause_say_nothing(tmp_path: Path) -> None:
    """The control."""
    on_ranks(2, seen.slow_loader, tmp_path, (), folder=tmp_path)
    assert not [one for one in lines(tmp_path / "run", "warnings.jsonl") if one["name"] == "data-bound"]


class Told(Ranks):
    """The first of some ranks, whose others have left these notices."""

    def __init__(self, others: dict[int, dict[str, Any]]) -> None:
        super().__init__(0, len(others) + 1)
        self.others, self.meetings = others, 0

    def left(self) -> dict[int, dict[str, Any]]:
        return self.others

    def gather(self, value: Any) -> list[Any]:
        self.meetings += 1
        return [value, *(one.get("signs", []) for one in self.others.values())]


def sign(name: str) -> dict[str, Any]:
    return {"step": 9, "name": name, "figure": "so much", "remedy": "Do that."}


def test_what_was_heard_is_not_heard_again_and_nobody_meets_for_it() -> None:
    ranks = Told({1: {"signs": [sign("throttled")]}, 2: {}})
    notices = Notices(ranks)
    assert notices.news() == [Heard(1, 9, Sign("throttled", "so much", "Do that."))]
    assert notices.news() == []
    ranks.others[2] = {"signs": [sign("throttled"), sign("data-bound")]}
    assert ranks.meetings == 0
    found = notices.rest()
    assert [(who, one.sign.name) for who, one in by_name(found)] == [("rank 2", "throttled"), ("rank 2", "data-bound")]
    assert notices.rest() == []


def test_several_ranks_with_one_sign_are_named_together() -> None:
    ranks = Told({1: {"signs": [sign("throttled")]}, 2: {"signs": [sign("throttled")]}})
    assert [who for who, _ in by_name(Notices(ranks).news())] == ["ranks 1, 2"]


def test_figures_of_ranks_that_are_known_stand_in_the_row() -> None:
    ranks = Told({1: {"figures": {"gpu/sm_mhz": 1200.0, "data_wait": 0.2}}, 2: {}})
    row = Notices(ranks).row({"gpu/sm_mhz": 1700.0, "data_wait": 0.0, "gpu/celsius": 60, "loss": 1.0})
    assert row == {
        "ranks/gpu_sm_mhz_min": 1200.0, "ranks/gpu_sm_mhz_max": 1700.0, "ranks/data_wait_min": 0.0,
        "ranks/data_wait_max": 0.2,
    }  # fmt: skip
    assert Notices(Ranks()).row({"data_wait": 0.5}) == {}
