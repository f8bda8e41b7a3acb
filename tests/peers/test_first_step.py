"""What a run takes to its first step is told by part, of fresh processes, and a failing one leaves its words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import first_step

REPOSITORY = Path(__file__).resolve().parents[2]


def test_processes_of_both_trees_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    caches: list[bool] = []

    def one(row: str, arm: str, src: Path, dry: bool, kernels: Path | None) -> dict[str, object]:
        seen.append(src)
        caches.append(kernels is not None and not list(kernels.iterdir()))
        return {"loading": 1.0, "set_up": 2.0, "first_step": 0.5, "parts": {"packed_execution": 1.5}, "kernels": []}

    monkeypatch.setattr(first_step, "one", one)
    out, before = tmp_path / "first.json", tmp_path / "before"
    asked = ["x", "--dry", "--out", str(out), "--times", "2", "--cold", "1", "--src", str(before), "--commit", "abc"]
    monkeypatch.setattr("sys.argv", asked)
    assert first_step.main() == 0
    assert seen == [REPOSITORY / "src", before] * 2
    assert caches == [True, True, False, False], "the first of each tree finds no kernel compiled"
    found = json.loads(out.read_text())
    assert [(one["tree"], one["number"]) for one in found["processes"]] == [
        ("this", 0), ("before", 0), ("this", 1), ("before", 1),
    ]  # fmt: skip
    assert str(before) not in out.read_text(), "no folder of the user"


def test_a_process_that_fails_ends_the_measurement_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_step, "one", lambda *given: {"failed": "no such device"})
    monkeypatch.setattr("sys.argv", ["x", "--dry", "--out", str(tmp_path / "first.json"), "--commit", "abc"])
    assert first_step.main() == 1
    assert "no such device" in capsys.readouterr().out


@pytest.mark.long  # starts a process that trains
def test_a_rehearsal_names_the_parts(tmp_path: Path) -> None:
    out = tmp_path / "first.json"
    command = ["-m", "benchmarks.first_step", "--dry", "--times", "1", "--out", str(out), "--commit", "abc"]
    done = subprocess.run(
        [sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (process,) = json.loads(out.read_text())["processes"]
    assert 0 < sum(process["parts"].values()) <= process["set_up"]
    assert process["parts"]["packed_execution"] > 0
