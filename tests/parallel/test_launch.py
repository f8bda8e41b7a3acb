"""Promise: `--gpus N` and torchrun start a run of several processes by the command line, proved on one before."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.parallel.join import place
from dynotune.parallel.launch import _way_on, launch, must_be_launched
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.train.start.rehearse import largest
from tests.plan.test_plan import plan_of
from tests.tiny import chats, tiny_model, tiny_tokenizer

ONE_OF_FOUR = {
    "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "x", "MASTER_PORT": "1",
}  # fmt: skip


def test_torchruns_environment_is_understood() -> None:
    assert place(SFTConfig(use_cpu=True), ONE_OF_FOUR) == Ranks(3, 4, 3)
    assert place(SFTConfig(use_cpu=True, gpus=4), ONE_OF_FOUR) == Ranks(3, 4, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"MASTER_PORT": ""}, "MASTER_PORT is not set"),
        ({"LOCAL_WORLD_SIZE": "2"}, "several machines"),
        ({"RANK": "4"}, "RANK is 4"),
        ({"RANK": "x"}, "RANK is"),
        ({"WORLD_SIZE": "1"}, r"`gpus: 4` asks for 4 processes"),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, "`gpus: 4` disagrees with the 8 processes"),
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        place(SFTConfig(use_cpu=True, gpus=4), {**ONE_OF_FOUR, **change})


def test_only_the_first_process_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert must_be_launched(SFTConfig(gpus=2))
    assert not must_be_launched(SFTConfig(gpus=1))
    assert not must_be_launched(SFTConfig())
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not must_be_launched(SFTConfig(gpus=2))


def test_the_newest_checkpoint_is_named(tmp_path: Path) -> None:
    assert "No checkpoint was written" in _way_on(tmp_path)
    for name in ("step-9", "step-10", "step-2", "abandoned-step-90"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert "of step 10:" in _way_on(tmp_path)


def test_fewer_gpus_than_asked_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ConfigError, match="asks for 3 GPUs, and 1 is visible here"):
        launch(SFTConfig(gpus=3), [], Path(), prove=False, say=print)


@pytest.mark.parametrize("tokens", [None, 64, 640])
def test_the_rehearsed_micro_batch_is_the_largest(tokens: int | None) -> None:
    plan: Plan = plan_of(40, micro_batch_tokens=tokens)
    batch = largest(plan)
    lengths = plan.spans.lengths_of(plan.rows)
    assert batch.tokens >= max(one.tokens for step in plan.steps() for one in step.micro_batches)
    assert int(lengths[batch.rows].sum()) <= batch.tokens
    assert int(lengths[batch.rows].max()) == int(lengths.max())


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in chats(40)))
    return [
        "sft", "--model_name_or_path", str(tmp_path / "model"), "--dataset_name", str(tmp_path / "rows.jsonl"),
        "--use_cpu", "--logging_steps", "1", "--save_strategy", "steps", "--save_steps", "2",
        "--global_batch_size", "6", "--optim", "sgd",
    ]  # fmt: skip


def start(words: list[str], *before: str, **more: Any) -> "subprocess.Popen[str]":
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *before, "-m", "dynotune", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        **more,
    )


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_gpus_and_torchrun_give_the_losses_of_one_process(command: list[str], tmp_path: Path) -> None:
    runs = {
        "one": start([*command, "--max_steps", "5", "--output_dir", str(tmp_path / "one")]),
        "gpus": start([*command, "--max_steps", "5", "--output_dir", str(tmp_path / "gpus"), "--gpus", "2"]),
    }
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    said = {name: one.communicate(timeout=600)[0] for name, one in runs.items()}
    runs["torchrun"] = start([*command, "--max_steps", "5", "--output_dir", str(tmp_path / "torchrun")], *torchrun)
    said["torchrun"] = runs["torchrun"].communicate(timeout=600)[0]
    assert {name: one.returncode for name, one in runs.items()} == dict.fromkeys(runs, 0), said
    assert "proved on one process for 2" in said["gpus"]
    assert said["gpus"].count("execution: packed") == 1  # one process speaks
    for name in ("gpus", "torchrun"):
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
        assert (tmp_path / name / "logs" / "rank-1.log").exists()


@pytest.mark.long
def test_a_mistake_costs_one_process_and_is_said_once(command: list[str], tmp_path: Path) -> None:
    words = [*command, "--output_dir", str(tmp_path / "run"), "--gpus", "2", "--eval_strategy", "epoch"]
    one = start(words)  # there is no held-out data, which is seen when the data has been read
    said, _ = one.communicate(timeout=600)
    assert one.returncode == 2
    assert said.count("error: ") == 1
    assert "starting 2 processes" not in said
    several = start([*words, "--no_prove"])
    said, _ = several.communicate(timeout=600)
    assert several.returncode == 2
    assert said.count("error: ") == 1
    assert "proving" not in said


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_job_which_goes_on_from_its_checkpoint(
    command: list[str], tmp_path: Path, victim: int
) -> None:
    import psutil

    run = tmp_path / "run"
    words = [*command, "--output_dir", str(run), "--gpus", "2", "--no_prove", "--max_steps", "100000"]
    words += ["--save_total_limit", "2"]
    job = start(words)
    deadline = time.monotonic() + 300
    while not (run / "checkpoints" / "step-4").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    [process] = [p for p in psutil.Process(job.pid).children() if p.environ().get("RANK") == str(victim)]
    process.send_signal(signal.SIGKILL)
    said, _ = job.communicate(timeout=600)
    assert job.returncode == 128 + signal.SIGKILL
    assert f"the process of rank {victim} was ended by SIGKILL" in said
    assert "--resume_from_checkpoint true" in said
    resumed = start([*command, "--output_dir", str(run), "--resume_from_checkpoint", "true", "--max_steps", "100000"])
    deadline = time.monotonic() + 300
    assert resumed.stdout is not None
    lines = []
    for line in resumed.stdout:
        lines.append(line)
        if line.startswith("resumed from") or time.monotonic() > deadline:
            break
    resumed.kill()
    resumed.wait()
    assert lines[-1].startswith("resumed from"), lines


@pytest.mark.parametrize("launched", [True, False])
def test_the_jobs_exit_code_is_not_lost_to_what_aborts_while_python_ends(launched: bool) -> None:
    """As threads of torchrun's rendezvous may. Without a launch Python ends as always, which is the control."""
    program = f"""
import atexit, os
import dynotune.cli as cli, dynotune.parallel.launch as launch
class Aborts:
    def __del__(self): os.abort()
kept = Aborts()
atexit.register(print, "registered")
launch._launched["jobs"] = {int(launched)}
cli.run = lambda words: print("said") or 75
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "said\nregistered\n"
    assert done.returncode == (75 if launched else -signal.SIGABRT)
