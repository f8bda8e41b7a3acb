"""Promise: a run that may replace another costs it nothing until its own first step."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.errors import ConfigError, DynotuneError
from dynotune.train.folder.run_folder import RunFolder
from tests.tiny import chats, tiny_model


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


def test_files_that_no_run_wrote_are_not_replaced(run_tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"README.md, which no run of Dynotune wrote"):
            run_tiny(output_dir=str(tmp_path), overwrite_output_dir=overwrite)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_run_that_replaces_another_does_not_remove_what_it_reads(run_tiny: Any, tmp_path: Path) -> None:
    run_tiny()
    with pytest.raises(ConfigError, match=r"model_name_or_path: .*lies in `output_dir"):
        run_tiny(overwrite_output_dir=True, model_name_or_path=str(tmp_path / "run" / "model"))
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_two_runs_in_one_folder_at_once_are_refused(run_tiny: Any, tmp_path: Path) -> None:
    held = RunFolder.open(str(tmp_path / "run"), False, None)
    with pytest.raises(ConfigError, match="Another process is writing"):
        run_tiny()
    held.release()
    assert run_tiny().steps == 6


def test_a_run_that_failed_lets_its_folder_go(run_tiny: Any) -> None:
    with pytest.raises(DynotuneError):
        run_tiny(optim_args="no_such=1")
    assert run_tiny().steps == 6


def test_a_model_with_sampling_values_can_be_saved(run_tiny: Any, tmp_path: Path) -> None:
    """transformers loads `temperature` without `do_sample` and refuses to write it: hours later, at the first save."""
    from transformers import AutoModelForCausalLM

    model = tiny_model()
    model.generation_config.temperature = 0.6
    run_tiny(model=model, save_strategy="steps", save_steps=3)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    assert loaded.generation_config.temperature == 0.6
    assert loaded.generation_config.do_sample


def test_a_checkpoint_that_does_not_fit_the_disk_names_the_one_that_is_whole(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynotune.train.checkpoints import contents

    writes = 0
    real = contents.save_file

    def full(*args: Any) -> None:
        nonlocal writes
        writes += 1
        if writes > 1:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(contents, "save_file", full)
    console = Console(record=True, width=500, file=(tmp_path / "said").open("w"))
    run_tiny(save_strategy="steps", save_steps=2, console=console)
    said = console.export_text()
    assert re.search(r"warning: .* step 4 .*No space left.*newest complete one is .*step-2.* without protection", said)
    assert "3 saves in a row have failed" in said
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-2"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["failed_saves"] == 3
    monkeypatch.undo()
    assert run_tiny(resume_from_checkpoint=True, save_strategy="steps", save_steps=2).steps == 6


def test_a_run_folder_that_vanishes_is_made_again_and_said(run_tiny: Any, tmp_path: Path) -> None:
    import shutil

    from transformers import TrainerCallback

    class Vanish(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 3:
                shutil.rmtree(tmp_path / "run")

    console = Console(record=True, width=500, file=(tmp_path / "said").open("w"))
    run_tiny(callbacks=[Vanish()], console=console, save_strategy="steps", save_steps=5)
    assert "run was gone and is made again" in console.export_text()
    assert [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").open()] == [3, 4, 5, 6]
    assert run_tiny(max_steps=8, resume_from_checkpoint=True).steps == 8


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        RunFolder.open(str(tmp_path / "file"), False, None)


def test_a_precision_that_the_device_lacks_leaves_the_folder_to_others(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("this device computes no bfloat16")

    with monkeypatch.context() as patched:
        patched.setattr("dynotune.train.start.opened.choose_precision", refuse)
        with pytest.raises(ConfigError, match="bfloat16") as caught:
            run_tiny(max_steps=1)
    run_tiny(max_steps=1)  # while the error, and with it every frame that could hold the lock, is still there
    assert caught.value
