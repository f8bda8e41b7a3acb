"""Promise: CI tries a test that failed once more, alone; what fails twice, or not as a test, fails the suite."""

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / ".ci" / "suite.py"
UNSTEADY = """
from pathlib import Path

def test_steady():
    pass

def test_unsteady():
    before = Path("before")
    known = before.exists()
    before.touch()
    assert known
"""
SIX = """
from pathlib import Path

def test_steady():
    pass

@pytest.mark.parametrize("n", range(6))
def test_unsteady(n):
    before = Path(f"before-{n}")
    known = before.exists()
    before.touch()
    assert known
"""


def run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "Makefile").write_text(f"test:\n\t{sys.executable} -m pytest -q\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = long: takes long\n")
    (folder / "test_some.py").write_text(tests)
    command = [sys.executable, str(SUITE), "test", "not long"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_test_that_passes_alone_is_named_unsteady(tmp_path: Path) -> None:
    done = run(tmp_path, UNSTEADY)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("unsteady: test_some.py::test_unsteady failed, and passed")
    assert "1 failed, 1 passed" in done.stdout  # the suite's own verdict is not hidden


def test_a_suite_that_passes_runs_once(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_steady():\n    pass\n")
    assert done.returncode == 0
    assert "unsteady" not in done.stdout
    assert done.stdout.count("1 passed") == 1


@pytest.mark.parametrize(
    "tests",
    [
        UNSTEADY + "\ndef test_wrong():\n    assert False\n",
        "import nothing_of_this_name\n",
        UNSTEADY + "\n@pytest.fixture\ndef broken():\n    raise OSError\n\ndef test_error(broken):\n    pass\n",
        UNSTEADY + "\nimport os, atexit\ndef test_z():\n    os._exit(1)\n",
        SIX,
    ],
    ids=["fails twice", "does not import", "an error of a fixture", "pytest dies", "six at once"],
)
def test_what_fails_twice_or_not_as_a_test_fails_the_suite(tmp_path: Path, tests: str) -> None:
    done = run(tmp_path, "import pytest\n" + tests)
    assert done.returncode == 1
    assert "unsteady: " not in done.stdout
