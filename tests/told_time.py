"""A clock that no other process slows, in the place of `time` in modules whose seconds a test is about."""

import time
from types import ModuleType
from typing import Any

import pytest


class ToldTime:
    """This process's processor time, and the seconds that it is told to have waited, which nobody waits for."""

    def __init__(self) -> None:
        self.told = 0.0

    def perf_counter(self) -> float:
        return time.process_time() + self.told

    def sleep(self, seconds: float) -> None:
        self.told += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def told_time(patch: pytest.MonkeyPatch, *modules: ModuleType) -> ToldTime:
    """As `time` of these modules, which have imported it whole."""
    told = ToldTime()
    for module in modules:
        patch.setattr(module, "time", told)
    return told
