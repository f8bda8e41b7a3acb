"""Promise: several runs on a page stand in one table, each figure as its folder has it; what makes them hard to compare is
said above it, and what a run does not have is a dash with its reason, never a nought or another run's figure.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dynotune.cli import run as command
from dynotune.measure.words import DEFINITIONS
from dynotune.report.runs_beside import DEFINED, NO_SUMMARY, runs_beside
from dynotune.show.page import Lines, Section, Table, render
from tests.report.html_pages import Page, require_alone, require_readable
from tests.report.test_run_page import NASTY, folder

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"rows_read": 10, "rows_used": 9, "tokens_read": 1000, "tokens_used": 900, "label_tokens": 400}


def run(place: Path, data: str = "rows.jsonl", model: str = "org/small", **summary: Any) -> Path:
    folder(place, **{"definitions": DEFINITIONS, "real_tokens": 1000, **summary})
    (place / "ledger.json").write_text(json.dumps({**COUNTS, "sources": {f"/home/someone/{data}": COUNTS}}))
    (place / "environment.json").write_text(json.dumps({"gpus": [], "cpu": {"model": "Some CPU"}}))
    (place / "config.yaml").write_text(f"model_name_or_path: {model}\n")
    return place


def cells(*runs: Path) -> dict[str, list[str]]:
    [table] = [part for part in runs_beside(runs) if isinstance(part, Table)]
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.grid.rows}


def said(*runs: Path) -> tuple[list[str], list[str]]:
    """Lines above the table, and below it."""
    parts = runs_beside(runs)
    at = next(i for i, part in enumerate(parts) if isinstance(part, Table))
    above, below = (
        [line.text for part in some if isinstance(part, Lines) for line in part.lines]
        for some in (parts[:at], parts[at:])
    )
    return above, below


def test_each_figure_is_that_of_its_folder(tmp_path: Path) -> None:
    first = run(tmp_path / "a", mfu=0.421, train_seconds=1234.5)
    second = run(tmp_path / "b", rows=7, tokens_per_second=8123.4, fill=0.5, real_tokens=2_000_000, peak_memory_gib=3)
    found = cells(first, second)
    assert found == {
        "model": ["org/small", "org/small"],
        "method": ["sft", "sft"],
        "steps": ["5", "7"],
        "real tokens": ["1,000", "2,000,000"],
        "real tokens/s": ["7,000", "8,123"],
        "fill": ["93.0 %", "50.0 %"],
        "MFU": ["42.1 %", "—"],
        "peak memory, GiB": ["12.50", "3.00"],
        "last train loss": ["0.4000", "0.2857"],
        "last eval loss": ["0.5000", "0.5000"],
        "seconds of training": ["1,234.5", "1.5"],
        "speed-ups engaged": ["—", "—"],
    }
    above, below = said(first, second)
    assert above == []  # control: nothing differs that would have to be said
    assert below == [
        "— of 1. a: speed-ups engaged: the folder has no engagement.json.",
        "— of 2. b: MFU: a CPU has no bf16 peak here; speed-ups engaged: the folder has no engagement.json.",
    ]


def test_one_run_is_beside_nothing(tmp_path: Path) -> None:
    assert runs_beside([run(tmp_path / "a")]) == []


def test_engaged_is_counted_of_those_that_were_taken(tmp_path: Path) -> None:
    """By the record of a run on a GPU."""
    peers = json.loads((ROOT / "benchmarks/results/peers-packed-16k.json").read_text())
    record = peers["arms"]["dynotune"]["result"]["engagement"]
    states = [one["state"] for one in record["rows"]]
    both = run(tmp_path / "a"), run(tmp_path / "b")
    (both[0] / "engagement.json").write_text(json.dumps(record))
    assert "left out" in states  # or nothing is shown here
    engaged, taken = states.count("engaged"), len(states) - states.count("left out")
    assert cells(*both)["speed-ups engaged"] == [f"{engaged} of {taken}", "—"]


def test_other_models_data_methods_and_machines_are_named_above(tmp_path: Path) -> None:
    first = run(tmp_path / "a")
    other = run(tmp_path / "b", data="more.jsonl", model="org/large", method="dpo", pairs_per_second=3.25)
    (other / "environment.json").write_text(json.dumps({"gpus": [{"name": "A GPU"}, {"name": "A GPU"}]}))
    above, below = said(first, other)
    assert above == [
        "note: 2. b has another model than 1. a: org/large, and org/small",
        "note: 2. b has another method than 1. a: dpo, and sft",
        "note: 2. b has other data than 1. a: more.jsonl (9 rows used, 900 tokens used), and rows.jsonl (9 rows used, 900"
        " tokens used)",
        "note: 2. b has another machine than 1. a: 2 x A GPU, and Some CPU",
    ]
    assert cells(first, other)["pairs/s"] == ["—", "3.2"]
    assert any("pairs/s: no preference training" in line for line in below)
    assert "someone" not in " ".join(above)


def test_rows_of_the_same_name_that_are_others_are_named(tmp_path: Path) -> None:
    both = run(tmp_path / "a"), run(tmp_path / "b")
    counts = COUNTS | {"tokens_used": 901}
    (both[1] / "ledger.json").write_text(json.dumps({**counts, "sources": {"rows.jsonl": counts}}))
    [line] = said(*both)[0]
    assert "has other data than 1. a" in line
    assert "901 tokens used" in line


@pytest.mark.parametrize("other", [DEFINITIONS - 1, None], ids=["older", "not told"])
def test_figures_of_other_definitions_are_not_set_beside_one_another(tmp_path: Path, other: int | None) -> None:
    """Losses, memory and seconds are. Control: with the same definitions all are there."""
    both = run(tmp_path / "a", mfu=0.4), run(tmp_path / "b", definitions=other, mfu=0.3)
    [line] = said(*both)[0]
    assert "definitions" in line
    assert "Left out of the table: real tokens, real tokens/s, pairs/s, fill, MFU." in line
    found = cells(*both)
    assert not found.keys() & set(DEFINED)
    assert found["last train loss"] == ["0.4000", "0.4000"]
    assert set(DEFINED) - {"pairs/s"} <= cells(run(tmp_path / "a"), run(tmp_path / "b")).keys()


def test_a_run_that_has_not_ended_has_no_figures_of_speed_and_its_losses(tmp_path: Path) -> None:
    both = run(tmp_path / "a"), run(tmp_path / "b")
    (both[1] / "summary.json").unlink()
    found = cells(*both)
    assert (found["real tokens/s"], found["last train loss"]) == (["7,000", "—"], ["0.4000", "0.4000"])
    assert NO_SUMMARY in said(*both)[1][-1]


def test_what_a_rate_does_not_show_is_said(tmp_path: Path) -> None:
    """A run that was cut off, and shared beginnings, of which real tokens are counted once."""
    cut = {"why": "SIGTERM", "step": 3, "of": 9}
    first = run(tmp_path / "a", interrupted=cut, pairs_per_second=4.0)
    second = run(tmp_path / "b", share_of_tokens_saved=0.25, pairs_per_second=5.0)
    shares = "tokens that stood once for several sequences count once as real tokens (0.0 % of 1. a, 25.0 % of 2. b)"
    assert said(first, second)[0] == [
        "note: 1. a ended before its last step, after 3 of 9",
        f"note: {shares}: compare pairs/s",
    ]


def test_nothing_is_said_of_tokens_that_no_summary_counts(tmp_path: Path) -> None:
    """Two equal runs beside one that has not come to an end. Control: another share is told, without the latter."""
    first = run(tmp_path / "a", share_of_tokens_saved=0.25, pairs_per_second=4.0)
    second = run(tmp_path / "b")
    (second / "summary.json").unlink()
    third = run(tmp_path / "c", share_of_tokens_saved=0.25, pairs_per_second=4.0)
    assert said(first, second, third)[0] == []
    [note] = said(first, second, run(tmp_path / "d", pairs_per_second=4.0))[0]
    assert "(25.0 % of 1. a, 0.0 % of 3. d)" in note


@pytest.mark.parametrize(
    "other", [{"definitions": DEFINITIONS - 1, "pairs_per_second": 4.0}, {}], ids=["defined", "one"]
)
def test_nobody_is_sent_to_a_row_that_cannot_be_compared(other: dict[str, Any], tmp_path: Path) -> None:
    """The row is left out, or has one figure: shares are told, and no advice."""
    first = run(tmp_path / "a", share_of_tokens_saved=0.25, pairs_per_second=4.0)
    above, _ = said(first, run(tmp_path / "b", **other))
    assert above[-1].endswith("(25.0 % of 1. a, 0.0 % of 2. b)")


def test_somebody_elses_folder_is_no_trap(tmp_path: Path) -> None:
    first = run(tmp_path / "a", method=NASTY, steps=NASTY, tokens_per_second=[1], mfu=10**400, no_mfu=NASTY, fill=True)
    second = run(tmp_path / "b")
    (first / "environment.json").write_text(json.dumps({"gpus": [3, NASTY, {"name": NASTY}], "cpu": 4}))
    (first / "ledger.json").write_text(json.dumps({"sources": {NASTY: 3}, "rows_used": NASTY}))
    (first / "config.yaml").write_text("model_name_or_path: [1, 2]\n")
    text = render("x", [Section("a", ()), Section("b", ())], runs_beside([first, second]))
    page = Page(text)
    require_alone(page)
    require_readable(page)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert cells(first, second)["real tokens/s"] == ["—", "7,000"]


def test_the_page_has_the_table_and_the_numbers_of_its_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the page of one run has neither."""
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "a")
    run(tmp_path / "b")
    assert command(["report", "a", "b", "--output", "both.html"]) == 0
    page = Page((tmp_path / "both.html").read_text())
    require_alone(page)
    require_readable(page)
    for there in ("Runs beside one another", "1. run: a", "2. run: b", "last eval loss 0.5000 0.5000"):
        assert there in page.words, there
    assert command(["report", "a", "--output", "one.html"]) == 0
    alone = Page((tmp_path / "one.html").read_text()).words
    assert "beside one another" not in alone
    assert "1. run" not in alone
