"""Promise: a kill costs what was computed since the last segment; processes at the same work do not spoil each other's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.reference.pairs import Reference, many
from tests.reference.test_compute import cache, right

COUNT = 200

SCRIPT = """
import sys, time
from pathlib import Path
from tests.reference.pairs import Reference, many
from tests.reference.test_compute import cache

pairs = many(int(sys.argv[2]))
reference = Reference(pairs)

def score(numbers):
    time.sleep(float(sys.argv[3]))
    return reference(numbers)

print("begun", flush=True)
found = cache(Path(sys.argv[1]), seconds=0).obtain(pairs, score)
print(len(reference.asked), flush=True)
"""


def process(root: Path, pause: float) -> "subprocess.Popen[str]":
    top = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(top / "src"), str(top), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), str(COUNT), str(pause)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 3])
def test_killed_in_the_middle(tmp_path: Path, kills: int) -> None:
    pairs = many(COUNT)
    folder = cache(tmp_path).folder
    for kill in range(kills):
        running = process(tmp_path, 0.2)
        before = len(list(folder.glob("*.segment"))) if folder.exists() else 0
        deadline = time.monotonic() + 300
        while not folder.exists() or len(list(folder.glob("*.segment"))) < before + 5 + kill:
            assert running.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    score = Reference(pairs)
    found = cache(tmp_path).obtain(pairs, score)
    assert (found.values_PC == right(pairs)).all()
    assert 0 < len(score.asked) <= COUNT - 5 * kills
    assert not [text for text in found.sentences if "damaged" in text]  # half a segment has no name yet


@pytest.mark.long
def test_three_processes_at_once(tmp_path: Path) -> None:
    running = [process(tmp_path, 0.002) for _ in range(3)]
    for one in running:
        out, _ = one.communicate(timeout=600)
        assert one.returncode == 0
        assert out.startswith("begun")
    pairs = many(COUNT)
    score = Reference(pairs)
    assert (cache(tmp_path).obtain(pairs, score).values_PC == right(pairs)).all()
    assert score.asked == []
