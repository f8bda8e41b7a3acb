"""Promise: kill -9 at any moment costs the steps since the last checkpoint, and nothing else."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.tiny import chats, tiny_model, tiny_tokenizer

STEPS = 60


def configuration(folder: Path, name: str) -> Path:
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(40)))
    path = folder / f"{name}.yaml"
    settings = {
        "model_name_or_path": str(folder / "model"),
        "dataset_name": str(folder / "chats.jsonl"),
        "output_dir": str(folder / name),
        "max_steps": STEPS,
        "per_device_train_batch_size": 2,
        "save_steps": 4,
        "save_total_limit": 2,
        "logging_steps": 1,
        "use_cpu": True,
        "use_peft": True,
        "lora_dropout": 0.2,
        "lora_target_modules": "all-linear",
    }
    path.write_text(yaml.safe_dump(settings))
    return path


def command(config: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "dynotune", "sft", "--config", str(config), *more]


def losses(run: Path) -> list[tuple[int, float]]:
    return [(r["step"], r["loss"]) for r in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(tmp_path: Path, seed: int) -> None:
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(configuration(tmp_path, "whole")), check=True, env=quiet, capture_output=True)
    config, run, chance = configuration(tmp_path, "killed"), tmp_path / "killed", random.Random(seed)
    kills = 0
    for _ in range(40):
        resume = bool(list((run / "checkpoints").glob("step-*"))) if run.exists() else False
        more = ["--resume_from_checkpoint", "true"] if resume else ["--overwrite_output_dir", "true"]
        process = subprocess.Popen(command(config, *more), env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        done_before = len(losses(run)) if (run / "metrics.jsonl").exists() and resume else 0
        # Strike some steps after training has begun, at a random point within a step.
        target = done_before + chance.randint(3, 14)
        while process.poll() is None:
            if kills < 5 and (run / "metrics.jsonl").exists() and len(losses(run)) >= target:
                time.sleep(chance.random() * 0.05)
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.02)
        output, _ = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, output.decode()[-2000:]
    assert kills >= 3
    assert losses(run) == losses(tmp_path / "whole")
    adapters = [(folder / "adapter" / "adapter_model.safetensors").read_bytes() for folder in (run, tmp_path / "whole")]
    assert adapters[0] == adapters[1]
