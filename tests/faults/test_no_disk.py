"""Promise: a disk that is full at any moment, for a moment or for good, costs no checkpoint and makes none wrong.

libc's own calls fail (nodisk.c): Rust writes the tensors and Python the rest. A run then ends with a sentence, or goes on
and says what it could not write; with room again it goes on to the same rows and the same adapter, to the last bit.
"""

import ctypes
import errno
import mmap
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.runs import Outcome, Server, Story, inputs, server, what_is_wrong_at_the_end, what_is_wrong_now

MOMENTS = 40
COMPILER = shutil.which("cc") or shutil.which("gcc")


class Control(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_long),
        ("from_", ctypes.c_long),
        ("length", ctypes.c_long),
        ("code", ctypes.c_long),
        ("root", ctypes.c_char * 4096),
    )


class Disk:
    """Where, when and how long writing fails."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(ctypes.sizeof(Control)))
        self._file = path.open("r+b")
        self.control = Control.from_buffer(mmap.mmap(self._file.fileno(), 0))

    def set(self, root: Path, first: int = 0, length: int = -1, code: int = errno.ENOSPC) -> None:
        self.control.calls, self.control.from_, self.control.length, self.control.code = 0, first, length, code
        self.control.root = str(root).encode() + b"/"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodisk")


@pytest.fixture(scope="module")
def disk(place: Path) -> Disk:
    return Disk(place / "control")


@pytest.fixture(scope="module")
def warm(place: Path, disk: Disk) -> Iterator[Server]:
    if COMPILER is None:
        pytest.skip("needs a C compiler: what makes libc's calls fail is compiled on the spot")
    library = place / "nodisk.so"
    source = Path(__file__).parent / "nodisk.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    with (
        (place / "errors").open("w") as file,
        server(file, LD_PRELOAD=str(library), NODISK_CONTROL=str(place / "control")) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def whole(warm: Server, disk: Disk, place: Path) -> tuple[Path, Path, int]:
    """Inputs, the undisturbed run with every checkpoint, and how many calls an ordinary one makes."""
    given = inputs(place / "inputs")
    story = Story(place / "whole", given, {"save_total_limit": None, "save_steps": 1})
    disk.set(place / "nowhere")
    done = warm.run(story.next())
    assert done.code == 0, done.said
    ordinary = Story(place / "ordinary", given)
    disk.set(ordinary.folder)
    assert warm.run(ordinary.next()).code == 0
    return given, story.run, int(disk.control.calls)


def disturbed(warm: Server, disk: Disk, story: Story, first: int, length: int, code: int = errno.ENOSPC) -> Outcome:
    disk.set(story.folder, first, length, code)
    outcome = warm.run(story.next())
    disk.set(story.folder)
    return outcome


def what_is_wrong(warm: Server, story: Story, whole: Path, outcome: Outcome) -> list[str]:
    """After a disturbance: what it said, what it left, and what comes of it with room again."""
    wrong = what_is_wrong_now(story, whole, outcome.saved)
    if outcome.code not in (0, 2) or "Traceback" in outcome.said:
        wrong.append(f"it ended with {outcome.code} and not in words: {outcome.said[-1500:]}")
    if outcome.code == 2 and "error: " not in outcome.said:
        wrong.append(f"it says no reason: {outcome.said[-500:]}")
    if outcome.code != 0:
        again = warm.run(story.next())
        if again.code:
            return [*wrong, f"it does not go on: {again.said[-1500:]}"]
    return wrong + what_is_wrong_at_the_end(story, whole)


@pytest.mark.long
def test_a_disk_that_is_full_at_any_moment(
    warm: Server, disk: Disk, whole: tuple[Path, Path, int], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, run, calls = whole
    chance, wrong, survived = random.Random(4), dict[str, Any](), 0
    for number in range(MOMENTS):
        story = Story(place / f"story-{number}", given, job={"background": number % 2 == 0})
        first = 1 + int(calls * (number + chance.random()) / MOMENTS)  # one moment in each part of the run
        length = -1 if chance.random() < 0.5 else chance.randint(1, 20)
        code = errno.EROFS if number % 5 == 4 else errno.ENOSPC
        outcome = disturbed(warm, disk, story, first, length, code)
        survived += outcome.code == 0
        if said := what_is_wrong(warm, story, run, outcome):
            wrong[f"call {first} of {calls}, {length} of them, errno {code}"] = said
        shutil.rmtree(story.folder)
    with capsys.disabled():
        print(f"\n{MOMENTS} moments among {calls} calls: {survived} runs went on to their end")
    assert wrong == {}, "\n\n".join(f"{when}: {said}" for when, said in wrong.items())
    assert 0 < survived < MOMENTS


@pytest.mark.long
def test_a_careless_writer_is_caught(warm: Server, disk: Disk, whole: tuple[Path, Path, int], place: Path) -> None:
    """Negative control: files written where they belong, without a rename."""
    given, run, calls = whole
    wrong = []
    for number in range(4):
        story = Story(place / f"careless-{number}", given, job={"careless": True})
        outcome = disturbed(warm, disk, story, calls // 2 + 7 * number, -1)
        wrong += what_is_wrong_now(story, run, outcome.saved)
    assert any("has the name of a checkpoint and is none" in one for one in wrong)
