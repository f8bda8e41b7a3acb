"""Promise: a signal that one rank hears is obeyed by all, at the same step, however it reached that one alone."""

import os
import signal
from pathlib import Path

import pytest

from dynotune.errors import Interrupted
from tests.parallel import work
from tests.parallel.processes import on_ranks


def signalled(folder: Path, victim: int, number: int) -> None:
    """One rank alone gets a signal in step 2; every rank writes down how its run ended."""
    once = work.AtStep(victim, 1, lambda control: os.kill(os.getpid(), number))
    try:
        work.train(folder / "run", [once], **{**work.SAVES, "save_steps": 100})
        ended = "done"
    except Interrupted as left:
        ended = f"left after {left.step}"
    (folder / f"ended-{work.rank()}").write_text(ended)


@pytest.mark.parametrize(("victim", "number"), [(1, signal.SIGTERM), (1, signal.SIGUSR1)])
def test_a_signal_on_one_rank_is_obeyed_by_all_at_the_same_step(
    tmp_path: Path, victim: int, number: signal.Signals
) -> None:
    on_ranks(2, signalled, tmp_path, victim, int(number), folder=tmp_path)
    leaves = number == signal.SIGTERM
    assert [(tmp_path / f"ended-{rank}").read_text() for rank in range(2)] == ["left after 2" if leaves else "done"] * 2
    checkpoints = tmp_path / "run" / "checkpoints"
    assert (checkpoints / "step-2").is_dir()
