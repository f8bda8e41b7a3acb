"""Promise: the machine is looked at beside a run; what it cannot tell is left out, and nothing goes on behind the run."""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from dynotune.measure.beside import beside
from dynotune.measure.beside.beside import Beside
from dynotune.measure.beside.pauses import Pauses
from dynotune.measure.compiles import Compiles
from dynotune.measure.device_memory import Allocator, PhasePeaks
from dynotune.plan.layout import MicroBatch
from dynotune.plan.plan import Step
from dynotune.train.meter import Meter
from dynotune.train.telling import surroundings as module
from dynotune.train.telling.surroundings import Surroundings

PATIENCE = 120.0
"""Seconds for what takes a tenth of one on an idle machine."""


def test_before_it_begins_only_this_process_is_known() -> None:
    row = Surroundings(torch.device("cpu")).row()
    assert row.keys() == {"host/rss_gib", "host/cpus_busy"}


def test_a_process_samples_beside_and_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER", 0.0)
    monkeypatch.setattr(module, "INTERVAL", 0.05)
    monkeypatch.setattr(module, "LOOK", 0.05)
    monkeypatch.setattr(beside, "LONGEST_END", PATIENCE)
    around = Surroundings(torch.device("cpu"))
    around.begin()
    row: dict[str, Any] = {}
    until = time.monotonic() + PATIENCE
    while "host/available_gib" not in row and time.monotonic() < until:
        time.sleep(0.05)
        row = around.row()
    assert row["host/available_gib"] > 0
    assert row["host/workers_rss_gib"] >= 0
    assert not any(name.startswith(("gpu/", "memory/")) for name in row)
    assert around._beside is not None
    process = around._beside._process
    around.end()
    around.end()
    assert process.poll() == 0
    assert "host/rss_gib" in around.row()


def test_rows_that_come_faster_repeat_the_latest_look(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read() -> Allocator:
        reads.append(len(reads))
        return Allocator(
            allocated=len(reads) << 30, peak=len(reads) << 30, reserved=9 << 30, unusable=0, retries=0, out_of_memory=0
        )

    around = Surroundings(torch.device("cpu"))
    around.peaks = PhasePeaks(80 << 30, read, lambda: None)
    first, before = around.row(), len(reads)
    first["memory/allocated_gib"] = 0.0  # whoever gets a row may change it
    assert around.row()["memory/allocated_gib"] == before
    assert len(reads) == before
    monkeypatch.setattr(module, "LOOK", 0.0)
    assert around.row()["memory/allocated_gib"] == before + 1


def test_a_run_that_is_over_at_once_starts_no_process(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(module, "AFTER", 3600.0)
    monkeypatch.setattr(Beside, "begin", never)
    assert run_tiny(max_steps=2).summary["steps"] == 2


@pytest.mark.parametrize("what", ["subprocess.Popen", "tempfile.TemporaryFile"])
def test_where_no_process_can_be_started_the_run_goes_on_and_says_so_once(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(what, full)
    around = Surroundings(torch.device("cpu"))
    monkeypatch.setattr(module, "AFTER", 3600.0)
    around.begin()
    around._sample()
    assert around.row().keys() == {"host/rss_gib", "host/cpus_busy"}
    assert "did not begin ([Errno 11] Resource temporarily unavailable)" in around.note
    assert around.note == ""
    around.end()


def test_a_run_says_when_it_does_not_train(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up, evaluations, checkpoints and steps that compile, by the host's clock; the rest is training."""
    seen: list[Pauses] = []

    class Kept(Pauses):
        def __init__(self) -> None:
            super().__init__()
            self.asides: list[tuple[float, float]] = []
            seen.append(self)

        def end(self, at: float) -> None:
            if self._open is not None:
                self.asides.append((self._open, at))
            super().end(at)

    monkeypatch.setattr(module, "Pauses", Kept)
    before = time.perf_counter()
    run = run_tiny(
        max_steps=14, eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=6, test_split_size=4
    )
    (pauses,) = (one for one in seen if isinstance(one, Kept) and one.asides)
    took = sum(row.get("time/evaluation", 0.0) + row.get("time/checkpoint", 0.0) for row in run.metrics)
    assert sum(end - begin for begin, end in pauses.asides) >= took > 0
    for begin, end in pauses.asides:
        assert not pauses.trained(begin, end)
    assert not pauses.trained(before, before + 1e-3), "that was the warm-up"
    last = pauses.asides[-1][1]
    assert pauses.trained(last + 1e-6, last + 1e-3) or pauses._warm > last


def test_a_step_that_compiles_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses()
    pauses.warm(0.0)
    meter = Meter(torch.device("cpu"), pauses)
    made = iter([(0, 0.0), (3, 0.01), (0, 0.0)])
    monkeypatch.setattr(Compiles, "since", lambda self: next(made))
    batch = MicroBatch(np.array([0]), 100)
    step = Step(1, 0.1, np.array([0]), np.array([97]), [batch], real_tokens=97, label_tokens=50)
    marks = [time.perf_counter()]
    for _ in range(3):
        time.sleep(0.002)
        meter.add(step, 1e-3, torch.zeros(3))
        marks.append(time.perf_counter())
    between = list(pairwise(marks))
    inside = [(begin + (end - begin) / 4, end - (end - begin) / 4) for begin, end in between]
    assert [pauses.trained(*one) for one in inside] == [True, False, True]
