"""Promise: a command runs as it is given, its end is known, and nothing of it is left behind."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dynotune.bench.foreign.command import commands_of, names_of
from dynotune.bench.foreign.measure import Command
from dynotune.bench.foreign.process import run
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.errors import ConfigError
from dynotune.results.result import Verdict
from tests.bench.foreign.arms import arm, benched


def ran(tmp_path: Path, code: str) -> None:
    run([sys.executable, "-S", "-c", code], tmp_path, dict(os.environ), tmp_path / "out", tmp_path / "err")


def test_two_commands_to_a_result(tmp_path: Path) -> None:
    """Their seconds are told, since a busy host stretches what they sleep."""
    slow, fast = {"seconds": 0.15}, {"seconds": 0.075, "steps": 3}
    one = benched(tmp_path, arm("a", seconds=0.16, more=slow), arm("b", seconds=0.16, to="file", more=fast))
    assert one.comparisons[0].ratio is not None
    assert one.comparisons[0].ratio.estimate == pytest.approx(2.0)
    assert one.noise is not None
    assert len(one.schedule) == 6
    assert one.tier.value == "a fresh process a block"
    assert all(block.wall_seconds > block.seconds for each in one.arms for block in each.blocks)  # type: ignore[operator]


def test_running_out_of_memory_is_a_result(tmp_path: Path) -> None:
    out = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    one = benched(tmp_path, arm("a"), arm("b", fails=out))
    assert one.arm("b").failed == f"out of memory: {out} (exit code 1)"
    assert one.comparisons[0].verdict is Verdict.NOT_COMPARABLE
    (tmp_path / "again").mkdir()
    assert benched(tmp_path / "again", arm("a", fails=out), arm("b")).arm("a").failed is not None


def test_a_tip_about_memory_is_no_shortage(tmp_path: Path) -> None:
    """Nor is one that was handled before. What it died of is told."""
    tip = "tip: should you run out of memory, lower the batch"
    handled = (
        "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    with pytest.raises(ArmFailedError, match=r"failed \(exit code 1\): KeyError: 'lr'") as told:
        benched(
            tmp_path, arm("a"), arm("b", fails=f"{tip}\n{handled}\nTraceback (most recent call last):\nKeyError: 'lr'")
        )
    assert told.value.kind == "user"


def test_escape_sequences_of_a_command_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = benched(tmp_path, arm("a"), arm("b", fails="MemoryError: \x1b[2J\x1b]0;owned\x07"))
    said = capsys.readouterr().out
    assert "b: out of memory: MemoryError: \\x1b[2J\\x1b]0;owned\\x07 (exit code 1)" in said
    assert "\x1b" not in said + str(found.arm("b").failed)


def test_what_a_failing_command_said_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ArmFailedError, match=r"failed \(exit code 1\): KeyError: 'lr'\n.*\nloading\nKeyError: 'lr'"):
        benched(tmp_path, arm("a"), arm("b", fails="KeyError: 'lr'"))


def test_a_command_without_a_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArmFailedError, match=r"b: it reported no tokens and seconds\. Have it print"):
        benched(tmp_path, arm("a"), arm("b", says="done"))


def test_no_shell_reads_the_words(tmp_path: Path) -> None:
    run(["echo", "$HOME;", "*"], tmp_path, dict(os.environ), tmp_path / "out", tmp_path / "err")
    assert (tmp_path / "out").read_text() == "$HOME; *\n"
    with pytest.raises(ConfigError, match="`no-such-program` cannot be run: No such file"):
        run(["no-such-program"], tmp_path, dict(os.environ), tmp_path / "out", tmp_path / "err")


def test_a_signal_is_named_and_a_kill_is_taken_for_memory(tmp_path: Path) -> None:
    with pytest.raises(ArmFailedError, match=r"failed \(SIGSEGV\), without a word") as segfault:
        ran(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert segfault.value.kind == "user"
    with pytest.raises(ArmFailedError, match="out of memory: so it seems, since it was killed") as killed:
        ran(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert killed.value.kind == "memory"


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def settled(pid: int) -> bool:
    until = time.perf_counter() + 120
    while not gone(pid) and time.perf_counter() < until:
        time.sleep(0.01)
    return gone(pid)


def test_children_that_outlive_a_command_are_ended(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    benched(tmp_path, arm("a", leaves=str(left)), arm("b"))
    assert settled(int(left.read_text()))


def test_ctrl_c_ends_the_command_and_its_children(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    code = (
        "import subprocess, sys, time; from pathlib import Path\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(3600)'])\n"
        f"Path({str(left)!r}).write_text(str(child.pid)); time.sleep(3600)"
    )

    def interrupt() -> None:
        while not left.exists() or not left.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell that starts the tests in the background has SIGINT ignored, and Python leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            ran(tmp_path, code)
    finally:
        signal.signal(signal.SIGINT, before)
    assert settled(int(left.read_text()))


def test_words_become_commands() -> None:
    assert commands_of(["python", "a.py", "::", "python", "b.py", "x::y"]) == [
        ("python", "a.py"),
        ("python", "b.py", "x::y"),
    ]
    for words in ([], ["::"], ["a", "::"], ["::", "b"], ["a", "::", "::", "b"]):
        with pytest.raises(ConfigError, match="has no words"):
            commands_of(words)
    with pytest.raises(ConfigError, match="too many"):
        commands_of(["a", *["::", "a"] * 8])


def test_names_tell_commands_apart() -> None:
    assert names_of([["a", "x y"], ["a", "z"], ["a", "z"]]) == ["a 'x y'", "a z", "a z again"]
    long = ["python", "train.py", "--config", "a-file-with-a-rather-long-name.yaml", "--lr"]
    assert names_of([[*long, "1e-4"], [*long, "2e-4"], long]) == ["A: 1e-4", "B: 2e-4", "C"]
    assert names_of([["/home/someone/bin/python", "a.py"], ["python", "b.py"]]) == ["python a.py", "python b.py"]
    assert names_of([["/old/python", "a.py"], ["/new/python", "a.py"]]) == ["A: python", "B: python"]


def test_results_hold_no_secret_and_no_path_of_a_user(tmp_path: Path) -> None:
    secret = "hf_" + "a" * 34
    words = (*arm("a").words, "--data", "/home/someone/rows.jsonl", "--token", secret, "--api-key", "open-sesame")
    one, other = (Command(name, words, tmp_path, facts={"command": words}) for name in "ab")
    found = benched(tmp_path, one, other)
    assert secret not in found.model_dump_json()
    assert "open-sesame" not in found.model_dump_json()
    assert "someone" not in found.operating_point
    assert "rows.jsonl" in found.operating_point
