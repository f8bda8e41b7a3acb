"""The seconds of each optimizer step and nothing else, for a Python in which our package cannot be imported.

Written for any Python 3.8 and newer, by the standard library and PyTorch alone.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from typing import Any


class Steps:
    """Times steps, writes what it has, and stops the script where that was asked for."""

    def __init__(self, folder: str, why: str) -> None:
        self.folder, self.why, self.pid = folder, why, os.getpid()
        self.clock: int | None = None
        self.times: list[float] = []
        self.written = False
        with open(os.path.join(folder, "options.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            self.asked = json.load(file)
        self.wanted = (self.asked["warm_up"] or 10) + self.asked["steps"]

    def after_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if os.getpid() != self.pid or self.written:
            return
        self.clock = self.clock or id(optimizer)
        if id(optimizer) != self.clock:
            return
        import torch

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()  # every step: there is no later reading here
        self.times.append(time.perf_counter())
        if len(self.times) <= self.wanted:
            return
        self.write("steps")
        if self.asked["stop"]:
            sys.stderr.write("dynotune profile: the steps are timed; the script is stopped on purpose.\n")
            raise SystemExit(0)

    def write(self, ended: str) -> None:
        if self.written or os.getpid() != self.pid or not self.times:
            return
        self.written = True
        seconds = [later - earlier for earlier, later in zip(self.times, self.times[1:])]  # noqa: B905  (older Pythons)
        told = {"only_timed": self.why, "ended": ended, "seconds": seconds, "rank": int(os.environ.get("RANK", "0"))}
        path = os.path.join(self.folder, "observed-%d.json" % self.pid)  # noqa: PTH118, UP031
        with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(told, file)
        os.replace(path + ".part", path)  # noqa: PTH105


def begin(folder: str, why: str) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = Steps(folder, why)
    register_optimizer_step_post_hook(steps.after_update)
    atexit.register(steps.write, "script")
