"""Promise: a run that a bench of commands has started tells it what it trained on, by the bench's own protocol."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dynotune.bench.foreign import protocol
from dynotune.measure.words import Counts
from dynotune.plan.plan import Step
from dynotune.train.folder import bench_report
from tests.train.conftest import Runner


def test_a_run_reports_to_the_bench_that_asks(
    run_tiny: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    monkeypatch.setenv("DYNOTUNE_BENCH_REPORT", str(file))
    result = run_tiny()
    told = protocol.told(json.loads(file.read_text()), wall=1e6)
    assert (told.tokens, told.steps) == (result.summary["num_tokens"], 6)
    assert 0 < told.seconds <= result.summary["train_seconds"]


def test_the_first_steps_are_left_out_where_there_are_others(
    run_tiny: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    monkeypatch.setenv("DYNOTUNE_BENCH_REPORT", str(file))
    result = run_tiny(max_steps=14)
    told = protocol.told(json.loads(file.read_text()), wall=1e6)
    assert told.steps is not None
    assert 0 < told.steps <= 5
    assert told.tokens < result.summary["real_tokens"]


def test_what_two_documents_begin_with_counts_for_each(
    run_tiny: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a trainer counts it that shares nothing; what is processed is that and padding."""
    file = tmp_path / "report.json"
    monkeypatch.setenv("DYNOTUNE_BENCH_REPORT", str(file))
    of = Counts.of_steps

    def shared(steps: Sequence[Step]) -> Counts:
        counts = of(steps)
        counts.sequence_tokens = 2 * counts.real_tokens
        return counts

    monkeypatch.setattr(Counts, "of_steps", shared)
    result = run_tiny()
    told = protocol.told(json.loads(file.read_text()), wall=1e6)
    assert told.tokens == 2 * result.summary["real_tokens"]
    assert told.processed_tokens is not None
    assert told.processed_tokens >= told.tokens


def test_nothing_is_written_where_nobody_asks(run_tiny: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNOTUNE_BENCH_REPORT", raising=False)
    run_tiny(max_steps=2)
    assert bench_report.VARIABLE == protocol.VARIABLE
