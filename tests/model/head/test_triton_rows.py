"""Promise: the Triton kernel does what torch's operations do; without Triton, the reason is said.

On a machine without a GPU the kernel runs in Triton's interpreter, by the Python that `DYNOTUNE_TRITON_PYTHON` names: one
that sees this environment, Triton, and for Triton 3.6 a numpy before 2.4. Without that variable, this Python is tried.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune.model.head import kernel
from dynotune.model.head.rows import rows_in_torch

ROOT = Path(__file__).resolve().parents[3]


def test_the_kernel_in_the_interpreter() -> None:
    python = os.environ.get("DYNOTUNE_TRITON_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import triton, torch"], capture_output=True).returncode:
        pytest.skip(f"{python} has no Triton")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [python, "-m", "tests.model.head.interpreted"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for a CUDA device, so that what is said of a broken Triton can be tested anywhere."""
    kernel.row_function.cache_clear()
    yield torch.device("cuda", 0)
    kernel.row_function.cache_clear()


class FakeTriton:
    """A kernel module that behaves as told."""

    FAILURES = (RuntimeError,)

    def __init__(self, rows: Any) -> None:
        self.rows_in_triton = rows


def broken(*_: Any) -> None:
    raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")


def wrong(*args: Any) -> None:
    rows_in_torch(*args)
    args[5][0] += 0.01


@pytest.mark.parametrize(
    ("rows", "said"),
    [(broken, "does not work here (RuntimeError: Failed to find C compiler.)"), (wrong, "is wrong here (off by 0.01)")],
)
def test_a_triton_that_fails_or_errs_is_not_used_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, gpu: torch.device, rows: Any, said: str
) -> None:
    import dynotune.model.head as package

    fake = FakeTriton(rows)
    monkeypatch.setitem(sys.modules, "dynotune.model.head.triton_rows", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(package, "triton_rows", fake, raising=False)
    on_cpu = kernel.disagreement
    monkeypatch.setattr(kernel, "disagreement", lambda function, device: on_cpu(function, torch.device("cpu")))
    function, reason = kernel.row_function(gpu)
    assert function is rows_in_torch
    assert reason is not None
    assert said in reason


def test_without_triton_torch_does_the_work_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, gpu: torch.device
) -> None:
    import dynotune.model.head as package

    monkeypatch.delattr(package, "triton_rows", raising=False)
    monkeypatch.setitem(sys.modules, "dynotune.model.head.triton_rows", None)  # as Python marks what cannot be imported
    function, reason = kernel.row_function(gpu)
    assert function is rows_in_torch
    assert reason is not None
    assert "Triton cannot be imported" in reason


def test_a_kernel_that_works_is_used(monkeypatch: pytest.MonkeyPatch, gpu: torch.device) -> None:
    import dynotune.model.head as package

    fake = FakeTriton(lambda *args: rows_in_torch(*args))
    monkeypatch.setitem(sys.modules, "dynotune.model.head.triton_rows", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(package, "triton_rows", fake, raising=False)
    on_cpu = kernel.disagreement
    monkeypatch.setattr(kernel, "disagreement", lambda function, device: on_cpu(function, torch.device("cpu")))
    assert kernel.row_function(gpu) == (fake.rows_in_triton, None)
    assert kernel.row_function(torch.device("cpu")) == (rows_in_torch, None)
