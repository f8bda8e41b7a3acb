"""Promises: this process is copied only where nothing can hang in the copy, and a copy leaves alone what is its parent's."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from dynotune.data import ingest
from dynotune.data.progress import loading_progress
from dynotune.data.templates import bounds
from dynotune.data.workers import copy
from dynotune.data.workers import encode as module
from dynotune.data.workers.copy import Copy, NotAloneError
from tests.data.made_tokenizer import made_tokenizer
from tests.data.store.made import ROWS, chat, load, same, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no process is copied elsewhere")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs the tests may have threads that wait, which harm no copy."""
    monkeypatch.setattr(copy, "_python_threads", lambda: 1)
    monkeypatch.setattr(copy, "_other_threads", lambda: False)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Copy]]:
    """Those that a test makes. Each has ended and was waited for behind it."""
    made: list[Copy] = []
    real = Copy.__init__

    def noted(self: Copy, *given: Any) -> None:
        made.append(self)
        real(self, *given)

    monkeypatch.setattr(Copy, "__init__", noted)
    yield made
    for one in made:
        one.kill()
        assert one.wait(120) is not None
        one.stdout.close()


def told(work: Callable[[IO[bytes]], None], *kept: int) -> bytes:
    """What a copy that does `work` writes."""
    one = Copy(work, kept)
    return one.stdout.read()


def test_a_copy_answers_and_ends(alone: None, copies: list[Copy]) -> None:
    before = os.getpid()

    def work(results: IO[bytes]) -> None:
        results.write(f"{os.getppid()} {os.getpgid(0) == os.getpid()}".encode())
        results.flush()

    assert told(work) == f"{before} True".encode()
    assert copies[0].wait(120) == 0


def test_a_process_with_a_thread_of_python_is_not_copied(copies: list[Copy]) -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        with pytest.raises(NotAloneError):
            Copy(lambda results: None, ())
    finally:
        go.set()
        thread.join()
    assert not hasattr(copies.pop(), "pid")


@pytest.mark.parametrize(
    ("names", "copied"),
    [(["python"], True), (["python", "jemalloc_bg_thd"], True), (["python", "cuda-EvtHandlr"], False)],
)
def test_other_threads_but_known_ones_end_a_copy_at_once(
    names: list[str], copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: list[Copy]
) -> None:
    for number, name in enumerate(names):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n")
    monkeypatch.setattr(copy, "_python_threads", lambda: 1)
    monkeypatch.setattr(copy, "_TASKS", tmp_path)
    if copied:
        Copy(lambda results: None, ())
    else:
        with pytest.raises(NotAloneError):
            Copy(lambda results: time.sleep(60), ())
        assert copies[0].poll() == -signal.SIGKILL


def test_a_copy_has_the_files_that_it_is_to_have_and_no_others(alone: None, copies: list[Copy]) -> None:
    here, there = socket.socketpair()
    numbers = here.fileno(), there.fileno()

    def work(results: IO[bytes]) -> None:
        for number in numbers:
            try:
                os.fstat(number)
                results.write(b"open ")
            except OSError:
                results.write(b"closed ")
        results.flush()

    with here, there:
        assert told(work, there.fileno()) == b"closed open "


def test_signals_to_the_group_do_not_end_a_copy_and_its_parent_keeps_its_handlers(
    alone: None, copies: list[Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    real = os.fork

    def fork_then_signal() -> int:
        pid = real()
        if not pid:
            os.kill(os.getpid(), signal.SIGTERM)  # before it could ignore it
        return pid

    monkeypatch.setattr(os, "fork", fork_then_signal)

    def work(results: IO[bytes]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        results.write(b"lives " + str(came).encode())
        results.flush()

    try:
        assert told(work) == b"lives []"
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_copy_that_fails_says_so_and_ends_with_one(alone: None, copies: list[Copy], capfd: Any) -> None:
    def work(results: IO[bytes]) -> None:
        raise RuntimeError("planted")

    assert told(work) == b""
    assert copies[0].wait(120) == 1
    assert "planted" in capfd.readouterr().err


def test_who_waits_in_vain_is_told(alone: None, copies: list[Copy]) -> None:
    one = Copy(lambda results: time.sleep(60), ())
    assert one.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.05)
    one.kill()
    assert one.wait(120) == -signal.SIGKILL


def test_what_waits_to_be_printed_is_printed_once(tmp_path: Path) -> None:
    """And nothing that the parent does at its end is done by a copy, nor by a worker."""
    data = write(tmp_path / "data.jsonl", [chat("q" * n, "a" * n) for n in range(1, 60)])
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import atexit, os
        from pathlib import Path
        from dynotune.data.workers import encode
        from dynotune.data import ingest
        from tests.data.store.made import load
        ingest.CHUNK_ROWS = 7
        encode.usable_cores = lambda: 3
        real, made = encode.Pool.__enter__, []
        encode.Pool.__enter__ = lambda self: made.append(self.is_copy) or real(self)
        atexit.register(print, "the end")
        print("before", end=" ")
        print(len(load(Path({str(data)!r}), token_cache="off").examples), made)
        """)
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path]), "DYNOTUNE_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == ["before 59 [True]", "the end"]


def test_data_that_is_worth_it_is_encoded_by_copies_and_less_is_not(
    tmp_path: Path, alone: None, copies: list[Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "CHUNK_ROWS", 7)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    few = write(tmp_path / "few.jsonl", ROWS * 3)
    assert len(load(few, token_cache="off").examples) == 15
    assert copies == []
    rows = [ROWS[i % len(ROWS)] for i in range(100)]
    data = write(tmp_path / "data.jsonl", rows)
    many = load(data, token_cache="off")
    assert len(copies) == 1
    assert same(many, load(data, token_cache="off", dataset_num_proc=1))
    assert len(copies) == 1


def test_a_tokenizer_that_could_not_be_sent_goes_with_a_copy(tmp_path: Path, alone: None, copies: list[Copy]) -> None:
    tokenizer = made_tokenizer()

    class Own(type(tokenizer)):  # type: ignore[misc]
        pass

    tokenizer.__class__ = Own
    said: list[str] = []
    data = write(tmp_path / "data.jsonl")
    loaded = load(data, tokenizer, token_cache="off", dataset_num_proc=2, say=said.append)
    assert len(copies) == 1
    assert said == []
    assert same(loaded, load(data, token_cache="off"))


def test_rows_that_cannot_be_sent_stay_here(tmp_path: Path, alone: None, copies: list[Copy]) -> None:
    said: list[str] = []
    rows = [{**chat("q", "a"), "extra": lambda: None}] * 3
    loaded = load(None, train_dataset=rows, token_cache="off", dataset_num_proc=2, say=said.append)
    assert len(loaded.examples) == 3
    assert copies == []
    assert said
    assert said[0].startswith("tokenised in this process alone: rows cannot be sent to another process")


def test_the_thread_that_looks_at_templates_ends_before_and_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: list[Copy]
) -> None:
    """Else a second data set of a run would find its process with a thread."""
    bounds.within_bounds(lambda: None)
    watch = bounds._watch._thread
    assert watch is not None
    seen: list[bool] = []
    monkeypatch.setattr(copy, "_python_threads", lambda: seen.append(watch.is_alive()) or 1)
    monkeypatch.setattr(copy, "_other_threads", lambda: False)
    load(write(tmp_path / "data.jsonl"), token_cache="off", dataset_num_proc=2)
    assert seen == [False]
    assert len(copies) == 1
    bounds.within_bounds(lambda: None)
    again = bounds._watch._thread
    assert again is not None
    assert again.is_alive()


def test_the_progress_line_needs_no_thread(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = threading.active_count()
    with loading_progress("Reading", True) as advance:
        advance(128)
        assert threading.active_count() == before
    assert "128 rows" in capfd.readouterr().err
