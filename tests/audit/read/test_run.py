"""Promise: what a run has left is read, whoever ran it, and nothing is unpickled."""

import json
from pathlib import Path

import pytest

from dynotune.audit.read.run import read_run
from dynotune.errors import DataError


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_folder_of_dynotune(tmp_path: Path) -> None:
    write(
        tmp_path,
        config_dot_yaml="learning_rate: 1e-4\n",
        metrics_dot_jsonl='{"step": 1, "loss": 2.0}\n{"step": 2, "lo',
        ledger_dot_json='{"rows_read": 3}',
    )
    found = read_run(tmp_path)
    assert found.trainer == "Dynotune"
    assert list(found.metrics) == [{"step": 1, "loss": 2.0}]
    assert found.config["learning_rate"] == pytest.approx(1e-4)
    assert found.ledger == {"rows_read": 3}
    assert found.files["config.yaml"] > 0


def test_the_last_checkpoints_state_is_taken(tmp_path: Path) -> None:
    for step in (9, 10):
        state = json.dumps({"global_step": step, "log_history": [{"step": step, "loss": 1.0}]})
        write(tmp_path / f"checkpoint-{step}", trainer_state_dot_json=state, training_args_dot_bin="\x80 no pickle")
    found = read_run(tmp_path)
    assert found.trainer == "transformers"
    assert found.config["global_step"] == 10
    assert "checkpoint-9/training_args.bin" in found.files


def test_a_broken_state_has_no_history(tmp_path: Path) -> None:
    assert not read_run(write(tmp_path, trainer_state_dot_json="{")).metrics


def test_a_folder_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"trainer_state\.json"):
        read_run(write(tmp_path, notes_dot_txt="x"))
