"""Profiles of the scripts beside this file, for tests: each is a process of its own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dynotune.profile.foreign.command import Options, profile
from dynotune.profile.foreign.protocol import Asked
from dynotune.profile.records.record import Record

SCRIPTS = Path(__file__).parent / "scripts"


def loop(planted: dict[str, Any] | None = None, **asked: Any) -> Record:
    """The plain loop with what is planted in it."""
    return script("loop.py", json.dumps(planted or {}), **asked)


def script(name: str, *words: str, **asked: Any) -> Record:
    command = (sys.executable, str(SCRIPTS / name), *words)
    return profile(Options(command, Asked(**{"steps": 6, "warm_up": 4, **asked}), quiet=True), lambda text: None)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
