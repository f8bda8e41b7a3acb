"""Promise: however a profile is interrupted, nothing of the command that it started goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dynotune.profile.foreign.protocol import VARIABLE
from dynotune.profile.foreign.run import outside

PATIENCE = 180.0
"""Seconds for what takes one on an idle machine."""

PROFILE = """
import signal, sys
from pathlib import Path
from dynotune.profile.foreign.run import run
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
run([sys.executable, *sys.argv[2:]], Path(sys.argv[1]), None, print)
"""

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("pid.part", "w").write(str(os.getpid()))
os.rename("pid.part", "pid")
time.sleep(600)
"""

PLAIN = """
import os, time
open("pid.part", "w").write(str(os.getpid()))
os.rename("pid.part", "pid")
time.sleep(600)
"""

LAUNCHER = f"""
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", {PLAIN!r}], start_new_session=True)  # no `run`, which ends it
time.sleep(600)
"""


def until(there: Callable[[], object]) -> None:
    began = time.monotonic()
    while not there():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # nobody may be there to reap an orphan
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("script", "signals"),
    [
        pytest.param(STUBBORN, (signal.SIGINT, signal.SIGINT), id="Ctrl-C twice, and a script that hears none"),
        pytest.param(PLAIN, (signal.SIGHUP,), id="the terminal is closed"),
        pytest.param(LAUNCHER, (signal.SIGINT,), id="a worker in a session of its own"),
    ],
)
def test_nothing_goes_on(script: str, signals: tuple[signal.Signals, ...], tmp_path: Path) -> None:
    ours = subprocess.Popen([sys.executable, "-c", PROFILE, str(tmp_path), "-c", script], cwd=tmp_path)
    told = tmp_path / "pid"
    pid = 0
    try:
        until(told.is_file)
        pid = int(told.read_text())
        assert runs(pid)
        for i, one in enumerate(signals):
            time.sleep(1.0 if i else 0.0)  # two at once are one
            ours.send_signal(one)
        assert ours.wait(PATIENCE) != 0
        until(lambda: not runs(pid))
    finally:
        ours.kill()
        if pid and runs(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_took_over_a_number_is_not_of_the_command(tmp_path: Path) -> None:
    def sleeping(**variables: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **variables})

    ours, theirs = sleeping(**{VARIABLE: str(tmp_path)}), sleeping()
    try:
        pids = [ours.pid, theirs.pid, -1, 0, "1", None]
        (tmp_path / "events.jsonl").write_text(
            "".join(json.dumps({"event": "python", "pid": one}) + "\n" for one in pids)
        )
        until(lambda: [one.pid for one in outside(tmp_path)] == [ours.pid])
    finally:
        for one in (ours, theirs):
            one.kill()
            one.wait()
