"""Promise: a process gets its arm whole, secrets within keys too, by a file that nobody else can read; why
it ended is told."""

import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.running.rounds import reason
from dynotune.bench.workers.hand import Hand, short_line, write
from dynotune.bench.workers.worker import config_at
from dynotune.config import variables
from dynotune.config.load import load_config
from dynotune.config.sft import SFTConfig

KEPT = {"token": "hf_" + "A1b2C3d4E5" * 3, "subfolder": "main"}


def test_secrets_within_keys_reach_the_process_and_nobody_else(tmp_path: Path) -> None:
    config = SFTConfig(
        model_name_or_path="m",
        dataset_name="https://me:word@host/rows.jsonl",
        model_init_kwargs=KEPT,
        hub_token="hf_secret",
        env={"KEY": "value"},
    )
    path = write(Arm("a", config), tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = config_at(path, "sft")
    assert loaded.model_init_kwargs == KEPT
    assert loaded.dataset_name == "https://me:word@host/rows.jsonl"
    text = path.read_text()
    assert "hf_secret" not in text
    assert "value" not in text.split("env:")[-1][:20]
    shown = config.to_yaml()  # the control: what is kept and shown hides all of it
    assert KEPT["token"] not in shown
    assert "me:word" not in shown


@pytest.mark.parametrize(
    ("code", "log", "kind", "why"),
    [
        # One of several ranks ran out while it loaded, and the launcher ended the others: nobody answers.
        (
            1,
            "Traceback\ntorch.OutOfMemoryError: CUDA out of memory. Tried",
            "memory",
            "torch.OutOfMemoryError: CUDA out",
        ),
        (-9, "loading", "memory", "its process ended (SIGKILL)"),
        (1, "Traceback\nKeyError: 'x'", "bug", "its process ended (exit code 1)"),
    ],
)
def test_a_process_that_is_gone_is_known_by_its_last_words(
    code: int, log: str, kind: str, why: str, tmp_path: Path
) -> None:
    hand = Hand.__new__(Hand)
    hand.log, hand.process = tmp_path / "log", SimpleNamespace(wait=lambda: code)  # type: ignore[assignment]
    hand.log.write_text(log)
    error = hand._gone()
    assert error.kind == kind
    start = "out of memory: " if kind == "memory" else ""
    assert reason(error).startswith(start + why)


TRACE = "Traceback (most recent call last):"
OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    "line",
    [
        OUT,
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array",
        "RuntimeError: CUDA error: out of memory",
        "OSError: [Errno 12] Cannot allocate memory",
        "dynotune.errors.TrainingError: out of memory in the loss: CUDA",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
    ],
)
def test_a_shortage_is_known_by_what_a_process_died_of(line: str) -> None:
    """Of one of several ranks, and before what its launcher says, too."""
    assert short_line(line) == line
    launcher = f"{TRACE}\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n====\nRoot Cause"
    other = f"[rank1]: {TRACE}\n[rank1]: torch.distributed.DistBackendError: a remote process exited"
    assert short_line(f"[rank0]: {TRACE}\n[rank0]:   File\n[rank0]: {line}\n{other}\n{launcher}") == line
    assert short_line(f"{TRACE}\n{line}\n{launcher}") == line
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    assert short_line(f"{TRACE}\n{line}\n{cause}{TRACE}\nRuntimeError: training failed") == line
    assert short_line(f"{TRACE}\n{line}\n\nDuring handling of it\n{TRACE}\nKeyError: 'lr'") == "", "it was handled"


def test_words_about_memory_are_no_shortage() -> None:
    for line in (
        "tip: should you run out of memory, lower the batch",
        "handles OutOfMemoryError: see the manual",
        f'{TRACE}\n  File "a.py", line 1\n    raise MemoryError\nKeyError: 1',
    ):
        assert short_line(line) == ""


def test_an_arm_does_not_inherit_variables_of_the_configuration_that_was_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `bench --config a.yaml --vs b.yaml`, `a.yaml` has an `env:` and is read in the process that starts both."""
    monkeypatch.setattr(variables, "_EXPORTED", {})
    monkeypatch.setenv("DYNOTUNE_T_ARM", "x")  # put back behind the test
    monkeypatch.delenv("DYNOTUNE_T_ARM")
    first = tmp_path / "a.yaml"
    first.write_text("model_name_or_path: m\ndataset_name: d.jsonl\nenv: {DYNOTUNE_T_ARM: of a}\n")
    load_config(first)
    started: list[dict[str, str]] = []

    def start(*args: Any, env: dict[str, str], **kwargs: Any) -> Any:
        started.append(env)
        raise OSError("not started here")

    monkeypatch.setattr(subprocess, "Popen", start)
    config = SFTConfig(model_name_or_path="m", dataset_name="d.jsonl")
    arms = Arm("a", config.replace(env={"DYNOTUNE_T_ARM": "of a"})), Arm("b", config)
    for number, arm in enumerate(arms):
        with pytest.raises(OSError, match="not started here"):
            Hand(arm, tmp_path, number, {})
    assert [env.get("DYNOTUNE_T_ARM") for env in started] == ["of a", None]
