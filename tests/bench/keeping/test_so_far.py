"""Promise: a bench that is cut off leaves the rounds that it had run, and says that it is no end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.bench.keeping.so_far import CUT_OFF, SoFar
from dynotune.results.result import Result
from dynotune.train.outside.signals import StoppedError
from tests.bench.made import ab

ARM = """
import json, os, pathlib, signal, time
runs = pathlib.Path("runs")
with runs.open("a") as file:
    file.write("x")
if len(runs.read_text()) == int(os.environ["DYNOTUNE_TEST_KILLED_AT"]):
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(3600)
time.sleep(0.02)
print(json.dumps({"tokens": 1000, "seconds": 0.02}))
"""


def benched(folder: Path, killed_at: int) -> subprocess.CompletedProcess[str]:
    """Two commands of which the run of this number ends the bench: 2 before the rounds, then 2 a round and 2 of noise."""
    (folder / "arm.py").write_text(ARM)
    arm = [sys.executable, "-S", "arm.py"]
    words = ["bench", "--out", "kept", "--", *arm, "a", "::", *arm, "b"]
    environment = {**os.environ, "DYNOTUNE_TEST_KILLED_AT": str(killed_at), "DYNOTUNE_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "dynotune", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(("killed_at", "rounds"), [(5, 0), (9, 2)])
def test_a_signal_leaves_the_rounds_before_it(tmp_path: Path, killed_at: int, rounds: int) -> None:
    ended = benched(tmp_path, killed_at)
    assert ended.returncode == 143, ended.stderr
    kept = tmp_path / "kept" / "bench.json"
    assert kept.exists() == bool(rounds)
    if rounds:
        result = Result.read(kept)
        assert result.notes[0] == CUT_OFF.format(rounds)
        assert result.cut_off
        assert len(result.comparisons[0].log_ratios) == rounds
        assert f"the first {rounds} rounds are in kept/bench.json" in ended.stderr
    else:
        assert "nothing was saved" in ended.stderr
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("in the way")
    said: list[str] = []
    so_far = SoFar(lambda found, note: ab(), tmp_path / "kept", said.append)
    so_far(None, 3)
    assert "cannot be written" in said[0]
    assert so_far.rounds == 0


def test_other_errors_pass_as_they_are(tmp_path: Path) -> None:
    so_far = SoFar(lambda found, note: ab(), tmp_path, lambda text: None)
    so_far(None, 1)
    assert not list(tmp_path.iterdir()), "one round is nothing to keep"
    so_far(None, 2)
    assert json.loads((tmp_path / "bench.json").read_text())["kind"] == "ab"
    assert Result.read(tmp_path / "bench.json") == ab(cut_off=True)
    with pytest.raises(ZeroDivisionError), so_far:
        raise ZeroDivisionError
    with pytest.raises(StoppedError, match="the first 2 rounds are in") as stopped, so_far:
        raise StoppedError(15)
    assert stopped.value.number == 15
