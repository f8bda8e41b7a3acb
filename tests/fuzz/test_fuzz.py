"""Promise: whatever stands in a file that we read, the answer is the result or an error in words: no traceback of ours, no
endless wait, bounded memory, and nothing written outside of the output folder.

`python -m tests.fuzz.campaign KIND --case N --keep DIR` repeats a case.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dynotune.errors import ConfigError
from tests.fuzz import mutate
from tests.fuzz.campaign import campaign
from tests.fuzz.judge import Verdict, judge
from tests.fuzz.targets import Configurations, PairRows, Rows, Target

ROOT = Path(__file__).parents[2]
CASES = {
    "rows": 4000,
    "pairs": 1000,
    "checkpoints": 2500,
    "configurations": 1300,
    "tokenizers": 500,
    "stores": 400,
    "models": 300,
}


def test_there_are_ten_thousand_cases() -> None:
    assert sum(CASES.values()) == 10_000


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "DYNOTUNE_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "RUST_BACKTRACE": "0",
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_mutated_files_are_taken_or_refused_in_words(kind: str, tmp_path: Path) -> None:
    """In a process of its own, whose memory is bounded: what ends a process ends that one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.campaign", kind, "--cases", str(CASES[kind])],
        cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, errors="replace", timeout=1800,
    )  # fmt: skip
    told = f"{done.stdout[-8000:]}\n{done.stderr[-3000:]}"
    assert done.returncode == 0, told
    assert f"{CASES[kind]:,} cases" in done.stdout, told
    print(done.stdout)


@pytest.mark.parametrize("kind", [Configurations, PairRows, Rows])
def test_some_cases_of_the_fastest_kinds(kind: type[Target], tmp_path: Path) -> None:
    """A part of it in every run of the suite."""
    verdict = campaign(kind(), range(20_000, 20_060), tmp_path / "yard")
    assert not verdict.defects
    assert verdict.cases == 60
    assert verdict.refused.total() > 5


class Unguarded(Target):
    """The negative control: a command that reads JSON as if all were well."""

    name = "unguarded"

    def __init__(self) -> None:
        self.meant = {"a.json": b'{"rows": [1, 2, 3], "name": "x"}'}
        self.ways = {"a.json": mutate.tree}

    def run(self, folder: Path, chance: random.Random) -> Any:
        return sum(json.loads((folder / "a.json").read_text())["rows"])


def test_a_parser_without_guards_is_found(tmp_path: Path) -> None:
    verdict = campaign(Unguarded(), range(200), tmp_path / "yard")
    assert len(verdict.defects) > 50
    assert any("KeyError" in defect for defect in verdict.defects)
    assert any("TypeError" in defect for defect in verdict.defects)


def judged(command: Any, own: Path, seconds: float = 20) -> list[str]:
    verdict = Verdict()
    judge(verdict, "case", command, own, seconds)
    return verdict.defects


def test_the_judge_finds_each_kind_of_defect(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()

    def refuse(text: str) -> None:
        raise ConfigError(text)

    assert judged(lambda: None, own) == []
    assert judged(lambda: (own / "file").write_text("x"), own) == []
    assert judged(lambda: refuse("say what to do"), own) == []
    assert "a message with raw" in judged(lambda: refuse("\x1b[2J"), own)[0]
    assert "without a word" in judged(lambda: refuse(""), own)[0]
    assert "21,000 characters" in judged(lambda: refuse("x" * 21_000), own)[0]
    assert "ZeroDivisionError" in judged(lambda: 1 / 0, own)[0]
    assert "took more than 0.05 s" in judged(lambda: time.sleep(5), own, 0.05)[0]
    assert "wrote outside" in judged(lambda: (tmp_path / "beside").write_text("x"), own)[0]
    assert "wrote outside" in judged(lambda: (own / ".." / "beside2").mkdir(), own)[0]
    (tmp_path / "link").mkdir()
    (own / "link").symlink_to(tmp_path / "link")
    assert "wrote outside" in judged(lambda: (own / "link" / "x").write_text("x"), own)[0]
    assert "subprocess.Popen" in judged(lambda: subprocess.run(["true"]), own)[0]


def test_the_judge_finds_memory_that_grows(tmp_path: Path) -> None:
    """In a process of its own: a higher peak of earlier tests would hide it."""
    code = (
        "from pathlib import Path; from tests.fuzz import judge; judge.MEMORY = 64 << 20; verdict = judge.Verdict();"
        f" judge.judge(verdict, 'case', lambda: len(bytes(bytearray(400 << 20))), Path({str(tmp_path)!r}), 20);"
        " print(verdict.defects)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert "grew by" in done.stdout, done.stderr


def cli(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "dynotune", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        timeout=600,
    )


def fit_for_a_terminal(done: subprocess.CompletedProcess[bytes]) -> None:
    for stream in (done.stdout, done.stderr):
        text = stream.decode("utf-8", "replace")
        assert "Traceback" not in text, text
        assert not {c for c in text if not c.isprintable() and c not in "\n\t"}, repr(text[:2000])


@pytest.mark.long
def test_the_command_itself_on_mutated_configurations(tmp_path: Path) -> None:
    """A part through the real command: its exit code, and nothing raw on its streams."""
    target, codes = Configurations(), set()
    for number in range(10):
        meant = target.meant["a.yaml"]  # the first time as it is
        (tmp_path / "a.yaml").write_bytes(target.ways["a.yaml"](random.Random(number), meant) if number else meant)
        done = cli(tmp_path, "sft", "--config", "a.yaml", "--print_config")
        assert done.returncode in (0, 2), done.stderr.decode("utf-8", "replace")
        codes.add(done.returncode)
        fit_for_a_terminal(done)
    assert codes == {0, 2}


def test_the_seeds_repeat() -> None:
    """A case is known by its number."""
    target = Configurations()
    first, again, other = (
        target.ways["a.yaml"](random.Random(f"x {number}"), target.meant["a.yaml"]) for number in (7, 7, 8)
    )
    assert first == again != other


@pytest.mark.long
@pytest.mark.parametrize("kind", ["configurations", "rows"])
def test_atheris_finds_nothing(kind: str, tmp_path: Path) -> None:
    """Inputs that reach new lines of the readers, where atheris can be had."""
    pytest.importorskip("atheris", reason="atheris is not installed here: it has wheels for some systems only")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.coverage_guided", kind, "-max_total_time=3"],
        cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, errors="replace", timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "DONE" in done.stderr, done.stderr[-1000:]
