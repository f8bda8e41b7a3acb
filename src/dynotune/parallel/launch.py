"""`--gpus N`: prove on one process, then start as many as were asked for, by torchrun's own launcher."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from dynotune.config.keys.run import RunConfig
from dynotune.errors import RESUMABLE, ConfigError

HUNG = 124
"""Exit code of a job that ended because its processes made no progress: what `timeout` gives."""

ENDING = 600
"""Seconds that processes are given to save and leave when they are asked to end. Whoever asks may have less patience."""


_launched = {"jobs": 0}


def has_launched() -> bool:
    """Whether this process started others by torchrun's launcher. Threads of its rendezvous may then still stand in C++;
    where one comes back while Python ends, the process is aborted (seen: "terminate called without an active exception"),
    and the exit code of the job is lost."""
    return _launched["jobs"] > 0


def must_be_launched(config: RunConfig) -> bool:
    """Whether this process is to start the others and trains nothing itself."""
    return (config.gpus or 1) > 1 and "WORLD_SIZE" not in os.environ


def launch(config: RunConfig, words: Sequence[str], folder: Path, prove: bool, say: Callable[[str], None]) -> int:
    """Run `dynotune WORDS` on `config.gpus` processes and return the exit code of the job.

    folder: the run folder, for people. prove: first let one process do everything up to the first update.

    Raises `ConfigError` where there are fewer GPUs.
    """
    count = config.gpus
    assert count is not None
    refuse_missing_gpus(config, count)
    command = ["-m", "dynotune", *words]
    if prove:
        say(f"proving on one process before {count} start (`--no_prove` skips it)")
        proof = subprocess.run(  # noqa: S603  (this program with the words that it was given)
            [sys.executable, *command, "--prove_only"], stdout=subprocess.PIPE, text=True, check=False
        )
        if proof.returncode:
            return 128 - proof.returncode if proof.returncode < 0 else proof.returncode
        say(proof.stdout.strip().rsplit("\n", 1)[-1])
    say(f"starting {count} processes")
    return run_processes(command, count, folder, say)


def refuse_missing_gpus(config: RunConfig, count: int) -> None:
    """Raises `ConfigError` where so many processes have no GPU each."""
    if config.use_cpu:
        return
    import torch

    there = torch.cuda.device_count()
    if there < count:
        raise ConfigError(
            f"`gpus: {count}` asks for {count} GPUs, and {there} {'is' if there == 1 else 'are'} visible here. Ask for"
            " fewer, make more visible (`CUDA_VISIBLE_DEVICES`), or set `use_cpu: true` for processes on the CPU."
        )


def run_processes(command: Sequence[str], count: int, folder: Path, say: Callable[[str], None]) -> int:
    """Run `python COMMAND` on so many processes that find each other; returns the exit code of the job. folder: of its run,
    for people."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _launched["jobs"] += 1
    # What it says of failures comes beside what the processes say themselves, as tracebacks of its own.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    if "OMP_NUM_THREADS" not in os.environ:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ["OMP_NUM_THREADS"] = str(max(1, cores // count))
    settings: dict[str, Any] = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": count,
        "run_id": uuid4().hex,
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",  # a port that is free
        "max_restarts": 0,
        "monitor_interval": 0.1,
    }
    if "shutdown_timeout" in LaunchConfig.__dataclass_fields__:  # not in every version
        settings["shutdown_timeout"] = ENDING
    before = _how_it_was_left(folder)
    try:
        with _passed_on():
            elastic_launch(LaunchConfig(**settings), sys.executable)(*command)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        return _code_of(rank, failure.exitcode, folder, say)
    except SignalException as error:
        # The processes were asked the same, and have saved and left unless something kept them from it.
        left = _how_it_was_left(folder)
        return RESUMABLE if left is not None and left != before else 128 + int(error.sigval)
    return 0


def _how_it_was_left(folder: Path) -> tuple[int, str] | None:
    """When and how a run in `folder` was last saved and left; None where the last one was not."""
    try:
        summary = folder / "summary.json"
        return summary.stat().st_mtime_ns, json.dumps(json.loads(summary.read_text(encoding="utf-8"))["interrupted"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _code_of(rank: int, code: int, folder: Path, say: Callable[[str], None]) -> int:
    """The job's exit code; what a process could not say itself, since it was killed, is said."""
    if code >= 0:
        return code or HUNG
    name = signal.Signals(-code).name
    log = "its output is above" if rank == 0 else f"its log: {folder / 'logs' / f'rank-{rank}.log'}"
    say(
        f"error: the process of rank {rank} was ended by {name}"
        f"{' (often: the machine ran out of memory)' if name == 'SIGKILL' else ''}; {log}. All others were"
        f" ended. {_way_on(folder)}"
    )
    return 128 - code


def _way_on(folder: Path) -> str:
    steps = [int(p.name.removeprefix("step-")) for p in folder.glob("checkpoints/step-*") if p.name[5:].isdecimal()]
    if not steps:
        return "No checkpoint was written: the run starts again."
    return (
        f"The newest checkpoint is of step {max(steps):,}: go on with the same command and `--output_dir {folder}"
        " --resume_from_checkpoint true`, on as many processes or others."
    )


@contextmanager
def _passed_on() -> Iterator[None]:
    """SIGUSR1, on which a run saves and goes on, reaches every process; the launcher itself would die of it."""
    import psutil

    def pass_on(number: int, frame: object) -> None:
        for child in psutil.Process().children():
            child.send_signal(number)

    before = signal.signal(signal.SIGUSR1, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
