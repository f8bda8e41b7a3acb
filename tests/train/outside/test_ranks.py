"""Promise: a signal to one rank, or to the launcher, is obeyed by all ranks at the same step, and means the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from dynotune.errors import RESUMABLE
from tests.faults.runs import inputs


@pytest.mark.long
@pytest.mark.parametrize("whom", ["one rank", "the launcher", "everybody"])
def test_all_ranks_save_and_leave(tmp_path: Path, whom: str) -> None:
    given, run = inputs(tmp_path / "inputs"), tmp_path / "run"
    settings = {
        "model_name_or_path": str(given / "model"),
        "dataset_name": str(given / "chats.jsonl"),
        "max_steps": 5000,
    }
    settings |= {"output_dir": str(run), "logging_steps": 5, "use_cpu": True, "per_device_train_batch_size": 2}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    command = [
        sys.executable,
        "-m",
        "dynotune",
        "sft",
        "--config",
        str(tmp_path / "c.yaml"),
        "--gpus",
        "2",
        "--no_prove",
    ]
    with (tmp_path / "said").open("w") as said:
        launcher = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True
        )
        ends = time.monotonic() + 600
        while not ((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size):
            assert launcher.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < ends
            time.sleep(0.1)
        if whom == "one rank":
            psutil.Process(launcher.pid).children()[-1].send_signal(signal.SIGTERM)
        elif whom == "the launcher":
            launcher.terminate()
        else:
            os.killpg(launcher.pid, signal.SIGTERM)  # as Slurm does; the launcher passes it on once more
        assert launcher.wait(600) == RESUMABLE, (tmp_path / "said").read_text()
    [checkpoint] = (run / "checkpoints").iterdir()
    assert (
        f"SIGTERM: left after step {checkpoint.name.removeprefix('step-')} of 5000" in (tmp_path / "said").read_text()
    )
