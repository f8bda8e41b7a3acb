"""A process that has imported everything and forks a run for each job: a run to be killed costs no start-up.

Jobs come on stdin, one JSON object a line; for each, the child's process id and then its exit status go to stdout.
"""

import json
import mmap
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PHASES = ("start", "prepare", "load", "train", "evaluate", "save", "finish")
"""What a run is at, as the first byte of the job's `phase` file."""

POINTS = {
    "prepare": ("dynotune.train.start.opened", "read_material"),
    "evaluate": ("dynotune.train.evaluate", "Evaluator.__call__"),
    "finish": ("dynotune.train.flow", "finish"),
    "load": ("dynotune.train.start.opened", "prepare_model"),
    "train": ("dynotune.train.flow", "train"),
    "save": ("dynotune.train.checkpoints.checkpoints", "Checkpoints._write"),
}


def main() -> None:
    import transformers.models.llama.modeling_llama  # noqa: F401
    from rich.console import Console

    from dynotune import SFTConfig, train_sft
    from dynotune.errors import DynotuneError, Interrupted
    from dynotune.train import saving
    from dynotune.train.checkpoints import unwritten
    from dynotune.train.folder import finish

    finish.PATIENCE = saving.LITTLE_PATIENCE = unwritten.PAUSE = 0.02
    unwritten.FIRST_PAUSE = 0.01  # a save that failed is tried again at the next step
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child:
            print(json.dumps({"pid": child}), flush=True)
            _, status = os.waitpid(child, 0)
            print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)
            continue
        code = 70
        try:
            said = os.open(job["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.environ["DYNOTUNE_CACHE"] = job["cache"]
            follow(job)
            train_sft(SFTConfig(**job["config"]), console=Console(width=250))
            code = 0
        except Interrupted as left:
            code = int(left.code)
        except DynotuneError as error:
            print(f"error: {error}", flush=True)
            code = 2
        except BaseException:  # noqa: BLE001  (whatever it was, the test shows it)
            traceback.print_exc()
            code = 1
        finally:
            sys.stdout.flush()
            os._exit(code)


def follow(job: dict[str, Any]) -> None:
    """Write down what the run is at, and carry out what the job asks for."""
    import importlib

    from dynotune.train.checkpoints import checkpoints, room, whole_folders

    with Path(job["phase"]).open("r+b") as file:
        here = mmap.mmap(file.fileno(), 16)

    entered: Counter[str] = Counter()
    dying = job.get("die_in", {})

    def at(phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*arguments: Any, **more: Any) -> Any:
            before, here[0] = here[0], PHASES.index(phase)
            entered[phase] += 1
            if dying.get("phase") == phase and dying["count"] == entered[phase]:
                threading.Timer(dying["after"], os.kill, (os.getpid(), signal.SIGKILL)).start()
            try:
                done = work(*arguments, **more)
                if phase == "save":
                    here[8:16] = arguments[1].step.to_bytes(8, "little")
            finally:
                here[0] = before
            return done

        return traced

    for phase, (module, name) in POINTS.items():
        owner: Any = importlib.import_module(module)
        *classes, last = name.split(".")
        for one in classes:
            owner = getattr(owner, one)
        setattr(owner, last, at(phase, getattr(owner, last)))
    if job.get("background"):
        room.WORTH_A_THREAD = 0
    if job.get("careless"):  # the negative control: a checkpoint is written where it belongs, file by file
        checkpoints.put_in_place = in_place
        whole_folders.put_in_place = in_place
    if "die_at" in job:
        die_at(job["die_at"]["call"], job["die_at"]["count"])


def in_place(new: Path, target: Path) -> None:
    """What a careless writer does."""
    import shutil

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(new.rglob("*")):
        if path.is_dir():
            (target / path.relative_to(new)).mkdir(parents=True, exist_ok=True)
        else:
            (target / path.relative_to(new)).parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            with (target / path.relative_to(new)).open("wb") as file:
                os.write(file.fileno(), data[: len(data) // 2])
                os.fsync(file.fileno())  # a moment at which the kill may come
                os.write(file.fileno(), data[len(data) // 2 :])
    shutil.rmtree(new)


def die_at(call: str, count: int) -> None:
    """Die at the `count`th call of one of the calls that change the disk, before it is made."""
    real = getattr(os, call)
    made = 0

    def dies(*arguments: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        if made == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)

    setattr(os, call, dies)


if __name__ == "__main__":
    main()
