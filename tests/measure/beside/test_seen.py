"""Promise: what is said of a machine follows from samples of that time only, and what cannot be read is not made up."""

import os
import time
from pathlib import Path

import pytest

from dynotune.measure.beside import beside as module
from dynotune.measure.beside.beside import Beside
from dynotune.measure.beside.seen import MachineSeen, seen


def test_memory_and_processors_of_a_process_and_its_workers() -> None:
    samples = [
        {"at": float(i), "steal": 0.0, "processors": 4.0 * i, "busy": 1.5 * i, "rss": 100 + i, "workers_rss": 10 * i,
         "workers": 2, "host_available": 1000 - i}
        for i in range(5)
    ]  # fmt: skip
    found = seen(samples[1:], samples[:1], len)
    assert (found.rss, found.workers_rss, found.workers, found.host_available) == (104, 40, 2, 996)
    assert found.cpu == pytest.approx(1.5)
    assert found.sm_mhz is None
    assert found.memory_used is None
    assert seen([], samples, len) == MachineSeen()


def test_a_worker_that_ends_makes_no_time_run_backwards() -> None:
    samples = [
        {"at": 0.0, "steal": 0, "processors": 0, "busy": 9.0},
        {"at": 1.0, "steal": 0, "processors": 1, "busy": 2.0},
    ]
    assert seen(samples, [], len).cpu == 0.0


def test_a_gpu_that_is_idle_half_of_the_time_is_seen() -> None:
    samples = [{"at": i, "steal": 0, "processors": i, "utilisation": u} for i, u in enumerate((0.9, 0.1, 0.95, 0.2))]
    found = seen(samples, [], len)
    assert found.utilisation_low == 0.5
    assert found.utilisation_mean == pytest.approx(0.5375)


def test_this_process_is_watched() -> None:
    """The sampler counts neither itself among the workers nor its memory."""
    with Beside(watched=os.getpid(), interval=0.05) as beside:
        began = time.perf_counter()
        while beside.between(began, time.perf_counter()).samples < 2:
            time.sleep(0.02)
        found = beside.between(began, time.perf_counter())
        assert found.rss is not None
        assert found.rss > 1 << 20
        assert found.cpu is not None
        assert found.host_available


def test_a_long_run_keeps_neither_its_samples_nor_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after both were cut is whole: the next stretch begins with the last sample of the one before it."""
    monkeypatch.setattr(module, "LONGEST_FILE", 500)
    with Beside(watched=os.getpid(), interval=0.005) as beside:
        samples = 0
        for _ in range(5):
            began = time.perf_counter()
            while beside.between(began, time.perf_counter()).samples < 5:
                time.sleep(0.01)
            now = time.perf_counter()
            found = beside.between(began, now)
            samples += found.samples
            assert found.cpu is not None
            beside.forget(now)
            assert sum(one["at"] < now for one in beside._samples) == 1
        assert samples >= 25
        assert beside._read_from < samples * 100, "a line has more bytes, so the file began anew"
        assert beside.note == ""


def test_half_a_line_is_no_sample(tmp_path: Path) -> None:
    """As a disk that is full leaves it; what comes behind it counts."""
    program = tmp_path / "program.py"
    program.write_text(
        """import sys
print('{"note": ""}\\n{"at": 1.0, "steal"\\n{"at": 2.0, "steal": 0, "processors": 2}', flush=True)
sys.stdin.read()"""
    )
    with Beside(program=program) as beside:
        assert beside.between(0.0, 3.0).samples == 1
