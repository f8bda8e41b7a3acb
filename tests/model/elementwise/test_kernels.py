"""Promise: the Triton kernels compute what the model's own operations do; where Triton does not work, the reason is said.

On a machine without a GPU they run in Triton's interpreter, by the Python that `DYNOTUNE_TRITON_PYTHON` names: one that sees
this environment, Triton, and for Triton 3.6 a numpy before 2.4. Without that variable, this Python is tried.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune.model.elementwise import install, norm, usable
from tests.model.elementwise.stand_ins import stand_ins
from tests.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[3]


def test_the_kernels_in_the_interpreter() -> None:
    python = os.environ.get("DYNOTUNE_TRITON_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import triton, torch, pytest"], capture_output=True).returncode:
        pytest.skip(f"{python} has no Triton")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    options = ["-o", "addopts=", "-q", "-rs", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [python, "-m", "pytest", *options, "tests/model/elementwise/interpreted.py"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    if " passed" not in done.stdout:
        pytest.skip(done.stdout.strip()[-300:])


@pytest.fixture
def fresh() -> Iterator[None]:
    usable._tried.cache_clear()
    yield
    usable._tried.cache_clear()


GPU = torch.device("cuda", 0)


def test_without_triton_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # as Python marks what cannot be imported
    usable.kernels.cache_clear()
    found = usable.usable(GPU)
    usable.kernels.cache_clear()
    assert isinstance(found, str)
    assert "Triton cannot be imported" in found
    assert usable.usable(torch.device("cpu")) is None


def broken(*_: Any) -> Any:
    raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")


def wrong(*args: Any) -> Any:
    return norm.reference(*args) + 0.01


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (broken, "does not work here (RuntimeError: Failed to find C compiler.)"),
        (wrong, "are wrong here (off by 0.01)"),
    ],
)
def test_a_triton_that_fails_or_errs_is_not_used_and_the_reason_is_said(
    kernel: Any, said: str, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    made = stand_ins(rms_norm=kernel)
    monkeypatch.setattr(usable, "kernels", lambda: made)
    on_cpu = usable._disagreement
    monkeypatch.setattr(usable, "_disagreement", lambda found, device: on_cpu(found, torch.device("cpu")))
    found = usable.usable(GPU)
    assert isinstance(found, str)
    assert said in found
    monkeypatch.setattr(sys.modules["dynotune.model.elementwise.install"], "usable", lambda device: found)
    model = tiny_model()
    engaged = install(model, torch.float32)
    assert engaged.lines() == [f"elementwise kernels are not used: {found}"]
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_triton_that_works_is_used(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    made = stand_ins()
    monkeypatch.setattr(usable, "kernels", lambda: made)
    on_cpu = usable._disagreement
    monkeypatch.setattr(usable, "_disagreement", lambda found, device: on_cpu(found, torch.device("cpu")))
    assert usable.usable(GPU) is made
