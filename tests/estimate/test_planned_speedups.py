"""Promise: `dynotune plan` says which speed-ups a run will take and why not the others, without a GPU or weights."""

import json
from pathlib import Path
from typing import Any

import pytest

from dynotune.cli import run
from dynotune.speedups.machine import machine_of
from dynotune.speedups.remembered import Remembered, machines_folder
from tests.tiny import chats, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(16)))
    return folder


def planned(tiny: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, dict[str, Any]]:
    """Rows by name."""
    words = ["plan", "--model_name_or_path", str(tiny / "model"), "--dataset_name", str(tiny / "chats.jsonl"), "--json"]
    assert run([*words, *flags]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["speedups"]}


def test_on_the_cpu_kernels_are_left_out_and_nobody_is_surprised(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = planned(tiny, capsys, "--use_cpu")
    assert rows["packed_execution"]["state"] == rows["fused_optimizer"]["state"] == "chosen"
    assert (rows["rms_norm_kernel"]["state"], rows["rms_norm_kernel"]["expected"]) == ("left out", True)
    assert rows["fused_lora"]["evidence"] == "there is no adapter"


def test_for_a_gpu_that_is_not_here_its_kernels_are_planned(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = planned(tiny, capsys, "--use_peft", "--lora_target_modules", "all-linear")
    assert rows["rms_norm_kernel"]["state"] == rows["fused_lora"]["state"] == "chosen"
    attention = [row["state"] for name, row in rows.items() if name.startswith("attention_")]
    assert attention.count("chosen") == 1
    [chosen] = [row for name, row in rows.items() if name.startswith("attention_") and row["state"] == "chosen"]
    assert chosen["evidence"].endswith("Where its package works on that GPU, else the next of its kind.")
    assert "Where its package" not in rows["rms_norm_kernel"]["evidence"]


def test_what_is_on_and_cannot_be_is_an_error_of_the_plan_too(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "plan",
        "--model_name_or_path",
        str(tiny / "model"),
        "--dataset_name",
        str(tiny / "chats.jsonl"),
        "--use_cpu",
    ]
    assert run([*words, "--speedups.fused_lora", "on"]) == 2
    assert "there is no adapter" in capsys.readouterr().err


def test_what_failed_here_before_is_not_planned(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path))
    Remembered(machine_of("cpu"), machines_folder(), lambda text: None).keep_failure("prefetch", "the feed ignored it")
    row = planned(tiny, capsys, "--use_cpu")["prefetch"]
    assert row["state"] == "left out"
    assert "the feed ignored it" in row["evidence"]
    assert "--forget prefetch" in row["remedy"]
