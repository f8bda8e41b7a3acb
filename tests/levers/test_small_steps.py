"""Promise: what a replay is made of adds up, and its kernels have the classes of the launched ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu_small_steps import show
from benchmarks.levers.made_of import Ran, made_of, with_works_of

ROOT = Path(__file__).resolve().parents[2]


def test_time_beside_other_work_and_time_without_any() -> None:
    kernels = [
        Ran("frozen", 0, 10_000_000, "GEMM"),
        Ran("small", 2_000_000, 5_000_000, "LoRA"),  # inside of it
        Ran("small", 9_000_000, 12_000_000, "LoRA"),  # beyond its end
        Ran("norm", 15_000_000, 16_000_000, "norms"),
    ]
    told = made_of(kernels)
    assert (told["span_ms"], told["busy_ms"], told["gaps_ms"], told["beside_ms"]) == (16, 13, 3, 4)
    assert {work: (one["ms"], one["count"]) for work, one in told["classes"].items()} == {
        "GEMM": (10, 1), "LoRA": (6, 2), "norms": (1, 1),
    }  # fmt: skip
    assert told["classes"]["LoRA"]["names"] == [{"name": "small", "ms": 6, "count": 2}]


def test_kernels_of_a_replay_are_what_the_launched_ones_of_their_name_and_number_are() -> None:
    launched = [Ran("a", 0, 1, "GEMM"), Ran("b", 1, 2, "LoRA"), Ran("a", 2, 3, "LoRA"), Ran("c", 3, 4, "copies")]
    replayed = [Ran("a", 0, 3, "GEMM"), Ran("a", 3, 6, "GEMM"), Ran("b", 6, 7, "GEMM"), Ran("d", 7, 8, "other")]
    found, unsure = with_works_of(replayed, launched)
    assert [one.work for one in found] == ["GEMM", "LoRA", "LoRA", "other"]
    assert unsure == 6 / 8


def test_what_is_wrong_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {name: {"ms": 1.0, "least": 1.0} for name in ("forward", "backward", "both")}
    right = {"ok": True, "off": 0.0, "hidden_equal": True, **figures}
    row: dict[str, Any] = {"tokens": 320, "real": 258, "backend": "fa3", "noise": 0.0, "control": 1.0}
    result = {"rows": [{**row, "kinds": {"none": right}}], "rest": [], "traces": {}, "failed": {}, "seconds": 1.0}
    assert show(result) == 0
    for wrong in ({**right, "ok": False}, {"ok": False, "failed": "RuntimeError: capture"}):
        assert show({**result, "rows": [{**row, "kinds": {"none": right, "all": wrong}}]}) == 1
        assert "BAD   all" in capsys.readouterr().out


@pytest.mark.long
def test_a_rehearsal_runs_through_every_part(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_small_steps",
        "--out",
        str(tmp_path),
        "--dry",
        "--tokens",
        "64,144x16",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "gpu_small_steps.json").read_text())
    assert [row["tokens"] for row in result["rows"]] == [64, 144]
    assert [row["real"] for row in result["rows"]] == [64, 144]
    assert {"launched", "none", "gradients", "all"} < set(result["traces"])
    assert result["hardware"].endswith("a rehearsal")
