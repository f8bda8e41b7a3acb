"""Promise: a script that is not edited is seen from its first step to its last, and is none the worse for it."""

import sys
from pathlib import Path

import pytest

from dynotune.measure.evidence import Phase
from dynotune.measure.traces.attribution import PHASES
from dynotune.profile.foreign.command import Options, profile
from dynotune.profile.foreign.outcome import NothingSeenError
from dynotune.profile.foreign.protocol import Asked
from dynotune.profile.records.record import Record
from dynotune.profile.records.record_file import of_json, to_json
from tests.profile.foreign.scripted import SCRIPTS, loop, one_thread

__all__ = ["one_thread"]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def record() -> Record:
    return loop({"reads": True})


def test_steps_are_timed_and_one_is_traced(record: Record) -> None:
    assert [one.number for one in record.timed] == [6, 7, 8, 9, 10, 11]  # behind the first, and four of warming up
    assert all(one.seconds > 0 and one.data_wait is not None and one.processed_tokens == 256 for one in record.timed)
    assert record.trainer == "torch"
    assert record.optimizer == "AdamW (fused)"
    assert record.environment.device == "cpu"
    assert record.environment.loader_workers == 0
    (traced,) = record.traced
    assert traced.processed_tokens == 256
    assert traced.number == 13  # of two, the last one is kept


def test_the_trace_tells_phases_and_modules(record: Record) -> None:
    (traced,) = record.traced
    phases = {PHASES[phase] for phase, there in zip(traced.where.phase, traced.where.in_step, strict=True) if there}
    assert phases == set(Phase)
    assert {"body", "body.0", "head", "embed"} & set(traced.watched)
    assert any(name.startswith("aten::addmm") for name in traced.events.names)


def test_a_read_is_told_by_its_line(record: Record) -> None:
    line = next(i for i, text in enumerate((SCRIPTS / "loop.py").read_text().splitlines(), 1) if "THE READ" in text)
    assert {"what": "item", "at": f"loop.py:{line}", "own": True, "count": 1} in record.traced[0].facts["reads"]


def test_the_model_is_found_among_the_objects_of_the_script(record: Record) -> None:
    assert record.model.name == "Model"
    assert {(one.device, one.dtype, one.trained) for one in record.model.weights} == {("cpu", "float32", True)}
    assert record.model.parameters == 100 * 512 + 512 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 100 + 100


def test_the_record_survives_json(record: Record) -> None:
    assert to_json(of_json(to_json(record))) == to_json(record)


def test_what_cannot_be_told_is_none(record: Record) -> None:
    assert all(one.real_tokens is None and one.label_tokens is None for one in record.timed)  # no mask, no labels


def test_a_script_that_may_go_on_reaches_its_end(tmp_path: Path) -> None:
    written = tmp_path / "end"
    record = loop({"steps": 40, "writes": str(written)}, stop=False)
    assert written.read_text() == "the end was reached"
    assert len(record.timed) == 6


def test_a_script_that_is_stopped_does_not_and_leaves_nothing(tmp_path: Path) -> None:
    written = tmp_path / "end"
    loop({"steps": 40, "writes": str(written)})
    assert not written.exists()


def test_a_script_that_catches_the_stop_is_said_to_have_gone_on(tmp_path: Path) -> None:
    written = tmp_path / "end"
    record = loop({"steps": 40, "catches": True, "writes": str(written)}, traced=0)  # so that the optimizer raises it
    assert written.exists()
    assert len(record.timed) == 6
    assert "The script caught the exception that stops it (SystemExit) and went on." in record.notes


def test_a_script_that_ends_early_gives_what_there_was() -> None:
    record = loop({"steps": 9})
    assert [one.number for one in record.timed] == [6, 7, 8, 9]
    assert record.traced == ()
    assert any(note.startswith("The script ended by itself before everything was seen") for note in record.notes)


def test_a_script_that_fails_before_a_timed_step_is_quoted() -> None:
    with pytest.raises(NothingSeenError) as raised:
        loop({"fails": 2})
    assert "exit code 1" in str(raised.value)
    assert "RuntimeError: the disk is full" in str(raised.value)
    assert "optimizer step" in str(raised.value)


def test_a_shell_script_that_starts_python_is_seen_through(tmp_path: Path) -> None:
    shell = tmp_path / "train.sh"
    shell.write_text(f"#!/bin/sh\ncd /\n{sys.executable} {SCRIPTS / 'loop.py'} '{{}}' | cat\n")
    record = profile(Options(("sh", str(shell)), Asked(steps=3, warm_up=2), quiet=True), lambda text: None)
    assert len(record.timed) == 3


def test_warming_up_goes_by_the_rule_where_no_number_was_asked_for() -> None:
    record = loop({"compiles": True, "steps": 300}, warm_up=None, steps=3)
    assert record.warm_up.steps >= 10
    assert any("compilation" in event for event in record.warm_up.events)
