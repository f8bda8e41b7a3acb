"""Runs tests in a process of its own, in Triton's interpreter, with Liger.

By the Python that `DYNOTUNE_TRITON_PYTHON` names: one that sees this environment, Triton 3.6 with a numpy before 2.4, and
liger-kernel. Without that variable, this Python is tried.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(part: str) -> None:
    """Skips, with the reason, where that Python has no Triton or no Liger."""
    python = os.environ.get("DYNOTUNE_TRITON_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import triton, torch, pytest, liger_kernel"], capture_output=True).returncode:
        pytest.skip(f"{python} has no Triton or no liger-kernel")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [python, "-m", "pytest", "-o", "addopts=", "-q", "-rs", "-x", "-p", "no:cacheprovider", part],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
