"""Promise: a run's page says what the files of its folder say, stands alone, and what is damaged or lacking is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from dynotune.cli import run as command
from dynotune.errors import DataError
from dynotune.report import run_page
from dynotune.report.meter_part import POINTS, thinned
from dynotune.report.run_page import run_section, write_run_report
from tests.report.html_pages import Page, require_alone, require_readable

NASTY = "\x1b[2J</td><script>alert(1)</script>"


def folder(place: Path, rows: int = 5, **summary: Any) -> Path:
    """A run folder as a run leaves it, without a model."""
    place.mkdir(parents=True, exist_ok=True)
    metrics = [{"step": i + 1, "loss": 2.0 / (i + 1), "tokens_per_second": 7000.0 + i} for i in range(rows)]
    lines = [*metrics, {"step": rows, "eval_loss": 0.5}]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    figures = {
        "method": "sft", "steps": rows, "num_tokens": 1000, "train_seconds": 1.5, "train_loss": 0.7,
        "tokens_per_second": 7000.0, "fill": 0.93, "no_mfu": "a CPU has no bf16 peak here", "skipped_steps": [],
        "peak_memory_gib": 12.5,
    }  # fmt: skip
    (place / "summary.json").write_text(json.dumps(figures | summary))
    counts = {"rows_read": 10, "rows_used": 9, "tokens_read": 1000, "tokens_used": 900, "label_tokens": 400}
    ledger = {**counts, "sources": {"/home/someone/rows.jsonl": counts}, "skipped": {"empty": 1}}
    (place / "ledger.json").write_text(json.dumps(ledger))
    (place / "plan.json").write_text(json.dumps({"steps": rows, "layout": {"fill": 0.93}}))
    (place / "environment.json").write_text(json.dumps({"python": "3.11", "execution": ["packed"], "gpus": []}))
    (place / "config.yaml").write_text(
        "learning_rate: 0.001\nhub_token: secret-token\ndataset_name: /home/someone/rows.jsonl\n"
    )
    return place


def test_it_says_what_the_files_say(tmp_path: Path) -> None:
    page = Page(write_run_report(folder(tmp_path / "run")))
    require_alone(page)
    require_readable(page)
    for said in (
        "5 steps, 1,000 tokens in 1.5 s; mean training loss 0.7000",
        "7,000 real tokens/s",
        "fill 93.0 %",
        "rows.jsonl",
        "Skipped rows, by reason: empty 1.",
        "12.50",
        "The folder has no engagement.json.",
        "learning_rate: 0.001",
    ):
        assert said in page.words, said
    assert page.tags["svg"] == 2  # loss and speed
    assert "secret" not in page.words
    assert "someone" not in page.words


def test_the_meter_has_its_place(tmp_path: Path) -> None:
    """Where the time went adds up, warnings are shown, and curves of what a machine cannot tell are not drawn."""
    times = {"time/forward_backward": 7.0, "time/data_wait": 2.0, "time/evaluation": 1.0, "time/host": None}
    place = folder(tmp_path / "run", **times, **{"memory/peak_backward_gib": 33.25})
    rows = [
        {"step": i + 1, "loss": 1.0, "tokens_per_second": 10.0, "mfu": 0.4, "fill": 0.9, "host/rss_gib": 2.0}
        for i in range(9)
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, ["no row"]][:9]))
    said = {"step": 4, "name": "data-bound", "figure": NASTY, "remedy": "Look at the loader."}
    (place / "warnings.jsonl").write_text(json.dumps(said) + "\nhalf a li")
    text = write_run_report(place)
    page = Page(text)
    require_alone(page)
    require_readable(page)
    for said_there in (
        "What held it back", "data-bound, at step 4", "Look at the loader.", "Where the time went", "forward and backward",
        "7.0 s, 70.0 %", "Goodput", "70.0 %", "MFU 40", "backward", "33.25", "host 2",
    ):  # fmt: skip
        assert said_there in page.words, said_there
    assert "<script>" not in text
    assert page.tags["svg"] == 5  # loss, wall time, speed, use, memory
    assert "GPU use" not in page.words
    assert len(text) < 2_000_000


def test_an_interrupted_run_says_so_first(tmp_path: Path) -> None:
    place = folder(tmp_path / "run", interrupted={"why": "SIGTERM", "step": 3, "of": 9, "checkpoint": "x"})
    assert "ended before its last step, after 3 of 9: SIGTERM" in Page(write_run_report(place)).words


def test_little_or_nothing_is_there(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    words = Page(write_run_report(tmp_path)).words
    assert "The folder has no config.yaml, environment.json, ledger.json" in words


@pytest.mark.parametrize("name", ["summary.json", "plan.json", "ledger.json", "environment.json", "engagement.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000], ids=["half", "list", "bytes", "deep"])
def test_damage_names_the_file(tmp_path: Path, name: str, content: bytes) -> None:
    place = folder(tmp_path / "run")
    (place / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        write_run_report(place)


def test_strange_values_are_no_trap(tmp_path: Path) -> None:
    """The folder may be somebody else's."""
    place = folder(
        tmp_path / "run",
        steps=NASTY,
        train_loss=[1],
        tokens_per_second="fast",
        fill=None,
        huge=10**400,
        **{NASTY: NASTY},
    )
    (place / "ledger.json").write_text(json.dumps({"sources": [1], "skipped": {NASTY: {}}, "notices": 3}))
    (place / "environment.json").write_text(json.dumps({"gpus": 3, "execution": NASTY, NASTY: {NASTY: NASTY}}))
    page = Page(write_run_report(place))
    require_alone(page)
    assert "alert(1)" in page.words
    assert "\x1b" not in page.words


def test_a_long_run_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    text = write_run_report(folder(tmp_path / "run", rows=3 * POINTS))
    assert len(text) < 200_000
    curve = thinned(run_page.read_curves(tmp_path / "run" / "metrics.jsonl")[0])
    assert len(curve.steps) == POINTS
    assert (curve.steps[0], curve.steps[-1]) == (1, 3 * POINTS)


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder(tmp_path / "run")
    monkeypatch.setattr(run_page, "LARGEST", 100)
    with pytest.raises(DataError, match="more than is read for a report"):
        run_section(place)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "a")
    folder(tmp_path / "b")
    assert command(["report", "a"]) == 0
    assert capsys.readouterr().out == "written: a/report.html\n"
    assert command(["report", "a"]) == 0  # its own page is written again
    assert command(["report", "a", "b", "--output", "both.html"]) == 0
    assert Page((tmp_path / "both.html").read_text()).tags["section"] == 2
    (tmp_path / "a" / "summary.json").write_text("{")
    assert command(["report", "a"]) == 2
    assert "summary.json is damaged" in capsys.readouterr().err
