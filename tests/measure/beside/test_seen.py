"""Promise: what is said of a machine follows from samples of that time only, and what cannot be read is not made up."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynotune.measure.beside import beside as module
from dynotune.measure.beside.beside import Beside
from dynotune.measure.beside.pauses import Pauses
from dynotune.measure.beside.seen import MachineSeen, quantile, seen


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host a process takes long to begin and to end."""
    monkeypatch.setattr(module, "LONGEST_START", 120.0)
    monkeypatch.setattr(module, "LONGEST_END", 120.0)


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


def test_a_long_run_keeps_neither_its_samples_nor_their_file() -> None:
    """What comes after both were cut is whole: the next stretch begins with the last sample of the one before it."""
    with Beside(watched=os.getpid(), interval=0.005, longest=2000) as beside:
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
        assert beside._cuts > 0, "the file began anew"
        assert os.fstat(beside._file.fileno()).st_size <= 2000
        assert beside.note == ""


def test_a_file_that_nobody_reads_is_bounded_and_its_latest_samples_are_there() -> None:
    """As of a run that logs once an hour, or never."""
    with Beside(watched=os.getpid(), interval=0.002, longest=4000) as beside:
        first = beside._samples[0]["at"]
        until, cuts = time.monotonic() + 120, 0
        while cuts < 3 and time.monotonic() < until:
            time.sleep(0.01)
            assert os.fstat(beside._file.fileno()).st_size <= 4000
            cuts = beside._cut()  # nothing stands there while the file begins anew
        assert cuts >= 3
        now = time.perf_counter()
        while beside._samples[-1]["at"] < now:
            beside.read()
        times = [one["at"] for one in beside._samples]
        assert times == sorted(set(times)), "what stands in the file twice counts once"
        assert times[0] == first
        assert len(times) >= 5
        assert beside.note == ""


def recorded(uses: list[float]) -> list[dict[str, Any]]:
    """One sample a second, each of the second ahead of it."""
    return [
        {"at": i + 1.0, "steal": 0.0, "processors": 4.0 * i, "utilisation": use, "reasons": 0, "processes": [1]}
        for i, use in enumerate(uses)
    ]


def test_only_samples_of_training_tell_how_training_uses_a_gpu() -> None:
    """20 s of warm-up, an evaluation from 40 to 60 and a step that compiled for 10 s, all with an idle GPU."""
    pauses = Pauses()
    pauses.warm(20.0)
    pauses.begin(40.0)
    pauses.end(60.0)
    pauses.add(70.0, 80.0)
    samples = recorded([0.1] * 20 + [0.97] * 20 + [0.0] * 20 + [0.97] * 10 + [0.02] * 10 + [0.97] * 20)
    found = seen(samples, [], len, pauses.trained)
    assert found.utilisation_low == 0.5, "of all of the time"
    assert (found.training_low, found.training_utilisation) == (0.0, pytest.approx(0.97))
    assert found.training_samples == 20 + 10 + 20
    assert found.samples == 100


def test_a_pause_that_goes_on_and_a_warm_up_without_end_are_no_training() -> None:
    pauses = Pauses()
    assert not pauses.trained(5.0, 6.0)
    pauses.warm(0.0)
    pauses.warm(50.0)
    assert pauses.trained(5.0, 6.0), "what warmed up once is warm"
    pauses.begin(10.0)
    pauses.begin(11.0)
    assert pauses.trained(9.0, 10.0)
    assert not pauses.trained(9.5, 10.5)
    pauses.end(12.0)
    assert pauses.trained(12.0, 13.0)
    pauses.forget(100.0)
    assert pauses.trained(9.5, 10.5), "nobody asks for it any more"


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


@pytest.mark.parametrize("values", [[0.4], [0.9, 0.1], [0.5, 0.5, 0.2, 0.9, 0.1], [i / 41 for i in range(42)]])
def test_a_quantile_is_numpys(values: list[float]) -> None:
    assert quantile(values, 0.95) == pytest.approx(float(np.quantile(values, 0.95)))
