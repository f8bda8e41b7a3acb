"""Promise: a run ends with its page, which tells what was measured here of its speed-ups; a page that fails costs no run."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.errors import DataError
from dynotune.results.history import History
from dynotune.speedups.machine import machine_of
from dynotune.train.folder import finish
from tests.bench import made
from tests.report.html_pages import Page, require_alone, require_readable
from tests.tiny import tiny_model


def test_a_run_tells_what_was_measured_here(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    changes = (("packed_execution", 1.5, 1.4, 0.0),)
    model = {"parameters": sum(p.numel() for p in tiny_model().parameters())}
    here = {"machine": asdict(machine_of("cpu")), "work": "sft of LlamaForCausalLM", "model": model}
    History().keep(made.attribute(changes, **here))
    console = Console(width=140, record=True, file=io.StringIO())
    run = run_tiny(max_steps=2, console=console)
    rows = json.loads((run.folder / "engagement.json").read_text())["rows"]
    assert [row["effect"]["ratio"] for row in rows if row["name"] == "packed_execution"] == [1.4]
    page = Page((run.folder / "report.html").read_text())
    require_alone(page)
    require_readable(page)
    assert "+40.0 % [39.6, 40.4], 2026-11-22" in page.words
    assert "+40.0 %" in " ".join(console.export_text().split())


@pytest.mark.parametrize("kind", [DataError, OSError, KeyError, ZeroDivisionError])
def test_a_page_that_cannot_be_written_is_said_and_the_run_is_whole(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fails(run: Path) -> str:
        raise kind("plan.json is damaged\x1b[2J")

    monkeypatch.setattr(finish, "write_run_report", fails)
    console = Console(width=140, record=True, file=io.StringIO())
    run = run_tiny(max_steps=1, console=console)
    assert (run.folder / "model").is_dir()
    assert not (run.folder / "report.html").exists()
    told = " ".join(console.export_text().split())
    assert "report.html was not written (" in told
    assert "plan.json is damaged" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("steps", [1, 2])
def test_one_point_is_not_drawn_as_a_curve(run_tiny: Any, capsys: pytest.CaptureFixture[str], steps: int) -> None:
    run_tiny(console=Console(width=100), max_steps=steps, eval_strategy="no")
    said = capsys.readouterr().out
    assert ("train loss" in said) == (steps == 2)
    assert f"{steps} step{'s' * (steps > 1)}, " in said
