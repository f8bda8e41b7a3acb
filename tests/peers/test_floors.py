"""Of a row that a peer is compared by, each kernel class of our step stands beside its floor."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu_floors import arms_of, table
from benchmarks.peers.rows import ROWS

from dynotune.measure.kernel_classes import Work
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Row

REPOSITORY = Path(__file__).resolve().parents[2]


def breakdown(*rows: Row) -> Breakdown:
    return Breakdown(sum(row.seconds for row in rows), rows, 0.0, None, {}, (), (), True)


def test_a_replay_has_the_floors_of_the_launched_step() -> None:
    """Its own trace names no shapes, so that what floors it has are of the few operations outside of the graph."""
    launched = table(breakdown(Row(Work.GEMM, 0.080, 0.8, 0.060, 1.0), Row(Work.HOST, 0.020, 0.2, 0.0, 1.0)), None)
    assert [(one["class"], one["ms"], one["floor_ms"]) for one in launched] == [
        (Work.GEMM.value, 80.0, 60.0),
        (Work.HOST.value, 20.0, 0.0),
    ]
    replayed = table(
        breakdown(Row(Work.GEMM, 0.070, 0.9, 0.001, 0.1), Row(Work.OPTIMIZER, 0.001, 0.1, None, 0.0)), launched
    )
    assert [(one["ms"], one["floor_ms"]) for one in replayed] == [(70.0, 60.0), (1.0, None)]


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_ours_can_be_asked_for(name: str) -> None:
    arms = arms_of(ROWS[name])
    assert "launched" in arms
    graphs = any("step_graphs" in one.settings.get("speedups", {}) for one in ROWS[name].arms.values())
    assert ("replayed" in arms) == graphs


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
