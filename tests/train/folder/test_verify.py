"""Promise: a flipped byte in any kind of file that a run writes is noticed, and the file is named."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dynotune import cli
from dynotune.data.store.layout import MANIFEST as STORE_MANIFEST
from dynotune.errors import ConfigError
from dynotune.train.folder.verify import verify
from tests.tiny import chats

KINDS = {
    "config.yaml", "environment.json", "plan.json", "ledger.json", "engagement.json", "metrics.jsonl",
    "metrics.repeated.jsonl", "samples.jsonl", "quarantine.jsonl", "summary.json", "loss.svg", "README.md", "manifest.json",
    "adapter/adapter_model.safetensors", "adapter/adapter_config.json", "adapter/tokenizer.json",
    "checkpoints/step-6/training.safetensors", "checkpoints/step-6/trainable.safetensors",
    "checkpoints/step-6/state.json", "checkpoints/step-6/random.json", "checkpoints/step-6/manifest.json",
    "checkpoints/step-6/adapter/adapter_model.safetensors",
}  # fmt: skip
"""What a run with everything switched on leaves."""


@pytest.fixture
def whole_run(run_tiny: Any, tmp_path: Path) -> Path:
    settings = {
        "use_peft": True, "lora_target_modules": ["q_proj"], "save_strategy": "steps", "save_steps": 3,
        "eval_strategy": "steps", "eval_steps": 3, "eval_samples": 1, "eval_sample_max_new_tokens": 2,
        "on_bad_row": "skip", "assistant_only_loss": True,
    }  # fmt: skip
    rows, held_out = [*chats(10), {"messages": []}], chats(2, 7)
    run_tiny(rows=rows, eval_dataset=held_out, **settings)
    start = str(tmp_path / "run" / "checkpoints" / "step-3")
    run_tiny(rows=rows, eval_dataset=held_out, resume_from_checkpoint=start, **settings)
    return tmp_path / "run"


def test_a_flipped_byte_in_every_file_of_a_run_is_found_and_named(whole_run: Path) -> None:
    assert verify(whole_run).whole, verify(whole_run).lines()
    chance = random.Random(5)
    unsealed = (".lock", "report.html")  # the page holds nothing of its own, and `dynotune report` writes it again
    files = [p for p in whole_run.rglob("*") if p.is_file() and p.name not in unsealed and "abandoned" not in str(p)]
    assert {p.relative_to(whole_run).as_posix() for p in files} >= KINDS
    for path in files:
        before = path.read_bytes()
        if not before:
            continue
        for _ in range(3):
            changed = bytearray(before)
            changed[chance.randrange(len(before))] ^= chance.randrange(1, 256)
            path.write_bytes(changed)
            wrong = [sentence for part in verify(whole_run).parts.values() for sentence in part]
            assert any(path.name in sentence for sentence in wrong), path
        path.write_bytes(before)
    assert verify(whole_run).whole


def test_the_command_tells_programs_and_people(whole_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["verify", str(whole_run)]) == cli.DONE
    assert "run: as it was written" in capsys.readouterr().out
    file = whole_run / "adapter" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert cli.run(["verify", str(whole_run), "--json"]) == cli.USER_ERROR
    found = json.loads(capsys.readouterr().out)
    assert found["whole"] is False
    assert found["parts"]["run"] == ["adapter/adapter_model.safetensors differs from its checksum"]
    assert found["parts"]["checkpoints/step-6"] == []
    assert cli.run(["verify", str(whole_run / "checkpoints" / "step-6")]) == cli.DONE


def test_a_run_that_was_cut_off_is_checked_up_to_its_last_seal(run_tiny: Any, tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tiny(save_strategy="steps", save_steps=3, callbacks=[Stop()])
    found = verify(tmp_path / "run")
    assert found.whole
    assert "the run has not ended" in found.lines()[-2]
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join([*lines[:3], b"{torn\n", *lines[4:]]))
    assert not verify(tmp_path / "run").whole  # a line behind the seal
    metrics.write_bytes(b"".join([lines[0].replace(b"1", b"2", 1), *lines[1:]]))
    assert verify(tmp_path / "run").parts["run"] == ["metrics.jsonl differs from its checksum"]
    resumed = run_tiny(resume_from_checkpoint=True, save_strategy="steps", save_steps=3)
    assert resumed.steps == 6
    assert verify(tmp_path / "run").whole


def test_a_damaged_token_store_is_named(run_tiny: Any, tmp_path: Path, token_cache: Path) -> None:
    run_tiny(rows=chats(9, 98))
    stores = [p.parent for p in token_cache.rglob("ids.i32")]
    store = tmp_path / "store"
    shutil.copytree(stores[0], store)
    assert verify(store).whole
    for name in ("ids.i32", "offsets.i64", STORE_MANIFEST):
        before = (store / name).read_bytes()
        (store / name).write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
        assert not verify(store).whole
        (store / name).write_bytes(before)
    assert verify(store).whole


def test_a_folder_that_nothing_tells_of_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no manifest.json"):
        verify(tmp_path)
    with pytest.raises(ConfigError, match="no folder"):
        verify(tmp_path / "missing")


def test_a_file_that_was_put_into_a_checkpoint_afterwards_is_said(whole_run: Path) -> None:
    checkpoint = sorted(whole_run.glob("checkpoints/step-*"))[-1]
    assert not verify(whole_run).notes
    (checkpoint / "more.safetensors").write_bytes(b"")
    for folder in (whole_run, checkpoint):
        found = verify(folder)
        assert found.whole
        assert [note for note in found.notes if "more.safetensors is in no manifest" in note]
