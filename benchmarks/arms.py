"""Arms of a comparison on a GPU: each in a process of its own, one after another, what they found in one JSON file.

An arm is a way of doing a work: ours under some settings, or TRL's. Time is wall time over windows of steps behind a warm-up
(`figures` of each comparison); beside it `StepClock` notes for both sides, without waiting, what the device took for each
step and how often the allocator went to the driver: of a slow window they say which step it was, and whether memory grew.
"""

import argparse
import importlib.metadata as metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

PACKAGES = ("torch", "transformers", "peft", "trl", "liger-kernel")


class StepClock(TrainerCallback):
    """Of both sides. It waits for nothing while steps run."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self.segments: list[int] = []
        """Calls of the allocator for memory of the device, so far."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._note()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._note()

    def _note(self) -> None:
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.ends.append(event)
        self.segments.append(torch.cuda.memory_stats().get("num_device_alloc", 0))

    def read(self) -> dict[str, Any]:
        """Of each step: milliseconds between its end and that of the step before, and segments that were asked for."""
        import torch

        torch.cuda.synchronize()
        return {
            "step_ms": [before.elapsed_time(end) for before, end in pairwise(self.ends)],
            "step_segments": [end - before for before, end in pairwise(self.segments)],
            "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        }


class WindowClock(TrainerCallback):
    """Of TRL's trainer, which has none of its own: wall time at the end of each window, with the device's work done."""

    def __init__(self, steps: int) -> None:
        """steps: in a window."""
        self.steps = steps
        self.ends: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._note()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.steps == 0:
            self._note()

    def _note(self) -> None:
        import torch

        torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of each window."""
        return [b - a for a, b in pairwise(self.ends)]


def arguments(doc: str | None, works: Iterable[str], out: str) -> argparse.ArgumentParser:
    """Those that all comparisons have. works: names; out: the file that is written."""
    names = list(works)
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="the folder with `data` and `tokenizers`")
    parser.add_argument("--flash-attn", default="", help="a folder with a `flash_attn` package for TRL's arms")
    parser.add_argument("--works", default=",".join(names))
    parser.add_argument("--only", default="", help="arms whose name has this in it, while working on one side")
    parser.add_argument("--out", default=out)
    parser.add_argument("--commit", default="", help="commit of the tree, where it is not a git checkout")
    parser.add_argument("--work", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    return parser


def head(args: argparse.Namespace, module: str) -> dict[str, Any]:
    """What a file of results begins with."""
    import torch

    return {
        "command": " ".join([f"python -m {module}", *sys.argv[1:]]),
        "commit": args.commit,
        "hardware": torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in PACKAGES} | {"python": platform.python_version()},
        "flash_attn": "stand-in over PyTorch's own FlashAttention-2" if args.flash_attn else "as installed",
        "works": {},
    }


def run_all(
    args: argparse.Namespace,
    module: str,
    out: dict[str, Any],
    arms_of: Callable[[str], dict[str, dict[str, Any]]],
    own: Iterable[str] = (),
) -> None:
    """Every arm of every work that was asked for, in this order; `out` is written after each.

    arms_of: the settings of a work's arms by name, which begins with `dynotune` for ours; TRL's get `--flash-attn`. own:
    further arguments of the processes.
    """
    for work in args.works.split(","):
        arms = {arm: settings for arm, settings in arms_of(work).items() if args.only in arm}
        out["works"][work] = {"settings": arms, "arms": (results := {})}
        for arm in arms:
            env = {**os.environ, "HF_HUB_OFFLINE": "1"}
            path = "" if arm.startswith("dynotune") else args.flash_attn
            env["PYTHONPATH"] = ":".join(filter(None, [path, env.get("PYTHONPATH", "")]))
            asked = ["--shared", str(args.shared), "--work", work, "--arm", arm, *own]
            done = subprocess.run(
                [sys.executable, "-m", module, *asked], capture_output=True, text=True, env=env, check=False
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            results[arm] = json.loads(lines[-1][7:]) if lines else {"failed": (done.stdout + done.stderr)[-4000:]}
            print(
                work,
                arm,
                f"{results[arm]['ms_per_step']:.0f} ms" if lines else results[arm]["failed"][-600:],
                flush=True,
            )
            Path(args.out).write_text(json.dumps(out, indent=1))


def hand_back(result: dict[str, Any]) -> None:
    """From the process of an arm to `run_all`."""
    print("RESULT " + json.dumps(result), flush=True)
