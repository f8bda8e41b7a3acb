"""Promise: a run that may replace another costs it nothing until its own first step."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.errors import ConfigError, DynotuneError
from dynotune.train.run_folder import RunFolder
from tests.tiny import chats


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr_scheduler_kwargs": {"no_such": 1}},
        {"optim_args": "no_such=1"},
        {"rows": [{"text": ""}]},
        {"callbacks": [print]},
        {"use_peft": True, "lora_target_modules": ["nothing"]},
    ],
)
def test_a_replacement_that_fails_before_its_first_step_leaves_the_old_run(
    run_tiny: Any, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    run_tiny(save_strategy="steps", save_steps=3, rows=[*chats(8), {"messages": []}], on_bad_row="skip")
    before = contents(tmp_path / "run")
    assert "quarantine.jsonl" in before
    with pytest.raises(DynotuneError):
        run_tiny(overwrite_output_dir=True, **wrong)
    assert contents(tmp_path / "run") == before


def test_a_replacement_leaves_nothing_of_the_old_run(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny(save_strategy="steps", save_steps=3, rows=[*chats(8), {"messages": []}], on_bad_row="skip")
    run_tiny(overwrite_output_dir=True, max_steps=2)
    names = contents(tmp_path / "run")
    assert "quarantine.jsonl" not in names
    assert not [name for name in names if "step-3" in name]
    assert names["metrics.jsonl"].count(b"\n") == 2


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        RunFolder.open(str(tmp_path / "file"), False, None)
