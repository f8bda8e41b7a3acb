"""Promise: resident memory is what the system says of this process now, read without opening anything again."""

import os

import numpy as np
import psutil
import pytest

from dynotune.measure import resident as module
from dynotune.measure.resident import resident

CLOSE = 16 << 20
"""Bytes that may come and go between two looks."""


def test_it_is_what_the_system_says_and_follows_it() -> None:
    before = resident()
    assert before == pytest.approx(psutil.Process().memory_info().rss, abs=CLOSE)
    held = np.ones(16 << 20)
    assert resident() - before == pytest.approx(held.nbytes, abs=CLOSE)
    del held
    assert resident() == pytest.approx(before, abs=CLOSE)


def test_a_process_that_was_forked_reads_its_own() -> None:
    """Though it has the file of the one that it comes from."""
    before = resident()
    reading, writing = os.pipe()
    if not (child := os.fork()):
        held = np.ones(32 << 20)
        os.write(writing, f"{resident()} {psutil.Process().memory_info().rss} {len(held)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    said, right, _ = map(int, os.read(reading, 100).split())
    assert said == pytest.approx(right, abs=CLOSE)
    assert abs(right - before) > CLOSE, "it is not the other's"
    assert resident() == pytest.approx(before, abs=CLOSE)
    os.close(reading)
    os.close(writing)


def test_nothing_is_opened_again_and_without_linux_psutil_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    resident()
    monkeypatch.setattr(os, "open", lambda *_: 1 / 0)
    assert resident() > 0
    monkeypatch.undo()

    def none(*_: object) -> int:
        raise FileNotFoundError

    module._statm.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", none)
            assert module._statm(os.getpid()) is None
        assert resident() == pytest.approx(psutil.Process().memory_info().rss, abs=CLOSE)
    finally:
        module._statm.cache_clear()
