"""Promise: a process gets its arm whole, secrets within keys too, by a file that nobody else can read."""

import stat
from pathlib import Path

from dynotune.bench.asking.arms import Arm
from dynotune.bench.workers.hand import write
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
