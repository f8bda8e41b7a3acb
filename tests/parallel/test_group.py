"""Promise: ranks agree, start alike and write once; a dead or hung rank ends the job, is named, and leaves a way on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dynotune.parallel.launch import HUNG
from tests.parallel import work
from tests.parallel.processes import on_ranks


def said(folder: Path, rank: int) -> str:
    return (folder / f"out-{rank}").read_text()


def losses(run: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


@pytest.mark.parametrize("world", [2, 3])
def test_what_ranks_do_together(tmp_path: Path, world: int) -> None:
    on_ranks(world, work.meetings, tmp_path, folder=tmp_path)


def test_a_dead_rank_ends_the_job_and_is_named(tmp_path: Path) -> None:
    """Said once where the ranks' store outlives them, as under torchrun: else the first one to end may take it along."""
    codes = on_ranks(3, work.killed, tmp_path, 2, folder=tmp_path, check=False, store=True)
    assert codes[2] == -9
    assert all(code == 2 for code in codes[:2])
    told = said(tmp_path, 0) + said(tmp_path, 1)
    assert told.count("Rank 2 of 3 did not come to the ranks' agreement at step 4: killed") == 1  # said once
    assert "Rank 2 was last seen" in told
    assert "logs/rank-2.log" in told
    assert re.search(r"Go on from \S*checkpoints/step-2 with `resume_from_checkpoint: true`", told)
    assert (tmp_path / "run" / "checkpoints" / "step-2").is_dir()


@pytest.mark.parametrize("victim", [0, 1])
def test_a_hung_rank_ends_the_job_with_its_step_and_stack(tmp_path: Path, victim: int) -> None:
    codes = on_ranks(2, work.hung, tmp_path, victim, folder=tmp_path, check=False)
    assert list(codes) == [HUNG, HUNG]
    told = said(tmp_path, 0) + said(tmp_path, 1)
    assert told.count("no progress for 2 s (`ddp_timeout`)") == 1
    assert (
        f"Rank {victim} is behind: at step 2, in the" in told or f"Rank {victim} is behind: at step 3, in the" in told
    )
    assert len(re.findall(r"Go on from \S*checkpoints/step-\d with `resume_from_checkpoint: true`", told)) == 1
    log = (tmp_path / "run" / "logs" / f"rank-{victim}.log").read_text()
    assert "Python stacks of rank" in log
    assert "work.py" in log  # the line that sleeps


def test_an_error_on_one_rank_is_said_once_and_ends_all(tmp_path: Path) -> None:
    codes = on_ranks(2, work.fails_alone, tmp_path, folder=tmp_path, check=False)
    assert list(codes) == [2, 2], "and not that of a rank that waits for the other one and is taken to hang"
    assert "rank 1 ends the run:" in said(tmp_path, 1)
    assert "nothing" in said(tmp_path, 1)
    assert "Traceback" not in said(tmp_path, 0)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("configuration", "configuration: learning_rate is 0.1 on rank 1 and 0.5 on rank 0"),
        ("data", "plan: "),
        ("frozen weights", "weights: "),
    ],
)
def test_ranks_that_are_not_alike_do_not_begin(tmp_path: Path, how: str, named: str) -> None:
    codes = on_ranks(2, work.differs, tmp_path, how, folder=tmp_path, check=False)
    assert list(codes) == [2, 2]
    told = said(tmp_path, 0) + said(tmp_path, 1)
    assert "The ranks are not alike" in told
    assert named in told


def test_trained_weights_are_the_first_ranks(tmp_path: Path) -> None:
    """Negative control of the test above: what may differ is made alike."""
    on_ranks(2, work.differs, tmp_path, "trained weights", folder=tmp_path)
    assert len(losses(tmp_path / "run")) == 5


def test_what_one_ranks_callback_asks_for_happens_on_all(tmp_path: Path) -> None:
    on_ranks(2, work.asks_alone, tmp_path, folder=tmp_path)
    assert [(tmp_path / f"steps-{rank}").read_text() for rank in range(2)] == ["3 [True]", "3 [True]"]
    assert (tmp_path / "run" / "checkpoints" / "step-2").is_dir()


@pytest.mark.parametrize(("first", "then"), [(2, 2), (2, 1), (1, 2)])
def test_a_run_goes_on_with_as_many_ranks_or_others(tmp_path: Path, first: int, then: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    _start(first, whole, [5])
    _start(first, parts, [2])
    _start(then, parts, [5])
    assert losses(whole).keys() == losses(parts).keys()
    for step, loss in losses(whole).items():
        assert losses(parts)[step] == (loss if first == then else pytest.approx(loss, rel=1e-5)), step


def _start(world: int, folder: Path, steps: list[int]) -> None:
    if world == 1:
        work.interrupted_and_resumed(folder, steps)
    else:
        on_ranks(world, work.interrupted_and_resumed, folder, steps, folder=folder.parent)


def test_each_rank_draws_its_own_numbers(tmp_path: Path) -> None:
    on_ranks(2, work.dropout, tmp_path, folder=tmp_path)
    [saved] = (tmp_path / "run" / "checkpoints" / "step-2").glob("random.json")
    states: list[Any] = json.loads(saved.read_text())["ranks"]
    assert len(states) == 2
    assert states[0]["torch"] != states[1]["torch"]
