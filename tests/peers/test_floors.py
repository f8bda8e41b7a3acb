"""Of a row that a peer is compared by, each kernel class of our step stands beside its floor."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu_floors import arms_of, main, table
from benchmarks.peers.rows import ROWS

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Row

REPOSITORY = Path(__file__).resolve().parents[2]


def breakdown(*rows: Row) -> Breakdown:
    return Breakdown(sum(row.seconds for row in rows), rows, 0.0, None, {}, (), (), True)


def test_a_replay_has_the_floors_of_the_launched_step() -> None:
    """Its own trace names no shapes, so that what floors it has are of the few operations outside of the graph."""
    rows = (
        Row(Work.GEMM, 0.080, 0.7, 0.060, 1.0),
        Row(Work.COPIES, 0.010, 0.1, 0.005, 1.0),
        Row(Work.HOST, 0.020, 0.2, 0.0, 1.0),
    )
    launched = table(breakdown(*rows), None)
    assert [(one["class"], one["ms"], one["floor_ms"]) for one in launched] == [
        (Work.GEMM.value, 80.0, 60.0),
        (Work.COPIES.value, 10.0, 5.0),
        (Work.HOST.value, 20.0, 0.0),
    ]
    replayed = table(
        breakdown(Row(Work.GEMM, 0.070, 0.9, 0.001, 0.1), Row(Work.OPTIMIZER, 0.001, 0.1, None, 0.0)), launched
    )
    assert [(one["ms"], one["floor_ms"]) for one in replayed] == [(70.0, 60.0), (1.0, None), (0.0, 5.0)]


def test_a_replay_s_products_are_beside_all_floors_of_products() -> None:
    """Without shapes adapters' products look like others: beside the floor of those alone they would count for nothing."""
    launched = table(
        breakdown(
            Row(Work.GEMM, 0.069, 0.6, 0.066, 1.0), Row(Work.HEAD, 0.006, 0.1, 0.005, 1.0),
            Row(Work.LORA, 0.007, 0.1, 0.004, 1.0),
        ), None,
    )  # fmt: skip
    replayed = table(breakdown(Row(Work.GEMM, 0.078, 0.9, 0.001, 0.1), Row(Work.HEAD, 0.006, 0.1, None, 0.0)), launched)
    seen = [(one["class"], pytest.approx(one["ms"]), pytest.approx(one["floor_ms"])) for one in replayed]
    assert seen == [("GEMM and LoRA", 78.0, 70.0), (Work.HEAD.value, 6.0, 5.0)]
    assert sum(one["floor_ms"] for one in replayed) == pytest.approx(sum(one["floor_ms"] for one in launched))
    assert [one["class"] for one in launched] == [Work.GEMM.value, Work.HEAD.value, Work.LORA.value], "left as it was"


def test_the_floor_of_all_products_is_not_known_where_one_is_not() -> None:
    launched = table(breakdown(Row(Work.GEMM, 0.07, 0.9, 0.06, 1.0), Row(Work.LORA, 0.007, 0.1, None, 0.1)), None)
    [row] = table(breakdown(Row(Work.GEMM, 0.078, 1.0, 0.001, 0.1)), launched)
    assert (row["class"], row["floor_ms"]) == ("GEMM and LoRA", None)


def test_launched_and_replayed_are_the_rows_own_arms() -> None:
    assert arms_of(ROWS["packed-16k"]) == {"launched": {"gradient_checkpointing": False}}
    assert arms_of(ROWS["16-of-129"]) == {
        "launched": {"gradient_checkpointing": False},
        "replayed": {"gradient_checkpointing": False, "speedups": {"step_graphs": "on"}},
    }


def test_a_row_that_is_none_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["gpu_floors.py", "--dry", "--output", str(tmp_path), "--rows", "16-of-129,16-of-128"]
    )
    with pytest.raises(SystemExit):
        main()
    assert "no rows: 16-of-128" in capsys.readouterr().err


def test_a_row_that_fails_is_kept_as_that_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(row: Any, *_: Any) -> dict[str, Any]:
        if row is ROWS["dpo-32"]:
            raise RuntimeError("out of luck")
        return {"arms": {}}

    monkeypatch.setattr("benchmarks.gpu_floors.observed", some)
    monkeypatch.setattr("sys.argv", ["gpu_floors.py", "--dry", "--output", str(tmp_path), "--rows", "dpo-32,16-of-129"])
    assert main() == 1
    rows = json.loads((tmp_path / "floors.json").read_text())["rows"]
    assert "out of luck" in rows["dpo-32"]["failed"]
    assert rows["16-of-129"] == {"arms": {}}


@pytest.mark.long
def test_rows_are_observed_and_kept(tmp_path: Path) -> None:
    command = (sys.executable, "benchmarks/gpu_floors.py", "--output", str(tmp_path), "--dry")
    rows = ("16-of-129", "23m-full-8", "dpo-32")
    subprocess.run((*command, "--rows", ",".join(rows)), cwd=REPOSITORY, check=True, capture_output=True, timeout=300)
    kept: dict[str, Any] = json.loads((tmp_path / "floors.json").read_text())
    assert [*kept["rows"]] == [*rows]
    for row in kept["rows"].values():
        launched = row["arms"]["launched"]
        assert sum(one["ms"] for one in launched["rows"]) == pytest.approx(launched["step_ms"])
        assert 0 < launched["floors_ms"] <= launched["step_ms"]
