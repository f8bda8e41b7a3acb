"""Promise: a process gets its arm whole, secrets within keys too, by a file that nobody else can read; why
it ended is told."""

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynotune.bench.asking.arms import Arm
from dynotune.bench.running.rounds import reason
from dynotune.bench.workers.hand import Hand, write
from dynotune.bench.workers.worker import config_at
from dynotune.config.sft import SFTConfig

KEPT = {"token": "hf_" + "A1b2C3d4E5" * 3, "revision": "main"}


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
