"""Promise: the machine is looked at beside a run; what it cannot tell is left out, and nothing goes on behind the run."""

import time
from typing import Any

import pytest
import torch

from dynotune.measure.beside.beside import Beside
from dynotune.train import surroundings as module
from dynotune.train.surroundings import Surroundings


def test_before_it_begins_only_this_process_is_known() -> None:
    row = Surroundings(torch.device("cpu")).row()
    assert row.keys() == {"host/rss_gib", "host/cpus_busy"}


def test_a_process_samples_beside_and_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER", 0.0)
    monkeypatch.setattr(module, "INTERVAL", 0.05)
    around = Surroundings(torch.device("cpu"))
    around.begin()
    row: dict[str, Any] = {}
    for _ in range(400):
        if "host/available_gib" in row:
            break
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
