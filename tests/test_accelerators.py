"""Promise: an accelerator that is missing, one that does not import and one that fails here are three different things."""

import sys
from pathlib import Path

import pytest

from dynotune import accelerators
from dynotune.accelerators import Accelerator, Outcome, try_all, try_one

USE = "assert module.answer() == 42"


def fake(folder: Path, code: str, version: str | None = None) -> None:
    (folder / "fake_kernels.py").write_text(code)
    if version:
        info = folder / f"fake_kernels-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-kernels\nVersion: {version}\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On the path of this process and of those it starts, with a PyTorch that is imported in no time."""
    (tmp_path / "torch.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "fake_kernels", raising=False)
    return tmp_path


def tried(trial: str = USE, modules: str | tuple[str, ...] = "fake_kernels") -> Outcome:
    return try_one(Accelerator("fake", modules, trial, "fake-kernels", needs_gpu=False), "cpu")


def test_one_that_works(folder: Path) -> None:
    fake(folder, "def answer(): return 42", "9.1")
    assert tried() == Outcome("fake", "works", "9.1")


def test_one_that_is_not_there(folder: Path) -> None:
    assert tried() == Outcome("fake", "not installed")


def test_a_module_on_the_path_without_an_installed_package_is_there(folder: Path) -> None:
    fake(folder, "def answer(): return 42")
    assert tried() == Outcome("fake", "works")


SYMBOL = "fake_kernels.so: undefined symbol: _ZN3c104cuda9SetDeviceEa"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"raise ImportError({SYMBOL!r})", f"ImportError: {SYMBOL}"),
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "OSError: libcudart.so.12: cannot open shared"),
        ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("import os; os.abort()", "the process was ended by signal 6"),
        ("import os; os._exit(0)", "the process was left with exit code 0"),
    ],
)  # fmt: skip
def test_one_that_cannot_be_imported(folder: Path, code: str, reason: str) -> None:
    fake(folder, code, "9.1")
    outcome = tried()
    assert (outcome.status, outcome.version) == ("import failed", "9.1")
    assert outcome.reason is not None
    assert outcome.reason.startswith(reason)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def answer(): return 41", "AssertionError"),
        ("def answer(): raise RuntimeError('no kernel image is available')", "RuntimeError: no kernel image is available"),
        ("import os\ndef answer(): os.abort()", "the process was ended by signal 6"),
        ("import os\ndef answer(): os._exit(0)", "the process was left with exit code 0"),
    ],
)  # fmt: skip
def test_one_that_imports_and_fails_when_it_runs(folder: Path, code: str, reason: str) -> None:
    fake(folder, code, "9.1")
    assert tried() == Outcome("fake", "does not work here", "9.1", reason)


def test_of_several_modules_the_first_that_is_there_is_tried(folder: Path) -> None:
    fake(folder, "def answer(): return 42")
    assert tried(modules=("no_such_module", "json.no_such_part", "fake_kernels")).status == "works"
    assert tried(modules=("json.no_such_part", "fake_kernels.no_such_part")).status == "not installed"


def test_one_may_be_loaded_in_another_way_than_by_importing_a_module(folder: Path) -> None:
    fake(folder, "def answer(): return 42")

    def status(load: str) -> str:
        return try_one(Accelerator("fake", "fake_kernels", USE, needs_gpu=False, load=load), "cpu").status

    assert status("import fake_kernels as module") == "works"
    assert status("raise ModuleNotFoundError(NONE)") == "not installed"
    assert status("raise ImportError('another CUDA')") == "import failed"


def test_one_that_hangs_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "SECONDS", 2)
    fake(folder, "import time\ndef answer(): time.sleep(3600)")
    assert tried() == Outcome("fake", "does not work here", None, "no answer within 2 s")


def test_one_that_needs_a_gpu_is_imported_and_not_tried_without(folder: Path) -> None:
    fake(folder, "def answer(): return 41")
    needs = Accelerator("fake", "fake_kernels", USE)
    assert try_one(needs, "cpu").status == "not tried"
    assert try_one(needs, "cuda").status == "does not work here"
    fake(folder, "raise ImportError")
    assert try_one(needs, "cpu").status == "import failed"


def test_all_are_tried_at_the_same_time_and_given_as_plain_values(folder: Path) -> None:
    fake(folder, "def answer(): return 42")
    found = try_all(
        "cpu", (Accelerator("a", "fake_kernels", USE, needs_gpu=False), Accelerator("b", "no_such", "", "no"))
    )
    assert [(one["name"], one["status"]) for one in found] == [("a", "works"), ("b", "not installed")]


@pytest.mark.parametrize("one", accelerators.ACCELERATORS, ids=lambda one: one.name)
def test_every_trial_compiles(one: Accelerator) -> None:
    compile(one.load + one.trial, one.name, "exec")
