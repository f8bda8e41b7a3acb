"""Promise: a package that does not work here is told from a missing one, in words with the remedy; trying it costs once."""

import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from dynotune.accelerators import ACCELERATORS, Accelerator, Outcome
from dynotune.speedups import packages
from dynotune.speedups.contract import No
from dynotune.speedups.machine import Machine
from dynotune.speedups.packages import missing, refusal, trial, why_not
from dynotune.speedups.remembered import Remembered

HERE = ("2.11.0", "13.0")


def put(folder: Path, code: str, version: str | None = "9.1") -> None:
    (folder / "fake_kernels.py").write_text(code)
    if version:
        info = folder / "fake_kernels.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-kernels\nVersion: {version}\n")
        (info / "RECORD").write_text(f"fake_kernels.py,sha256={hash(code)},1\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On the path of this process and of those it starts, which use a PyTorch that is imported in no time."""
    assert torch.__version__  # this process has its own already
    place = tmp_path / "site"
    place.mkdir()
    (place / "torch.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "fake_kernels", raising=False)
    one = Accelerator("fake", "fake_kernels", "assert module.answer() == 42", "fake-kernels", needs_gpu=False)
    monkeypatch.setattr(packages, "ACCELERATORS", (one,))
    packages._once.cache_clear()
    return place


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One for each process that was started to try."""
    made: list[str] = []
    real = packages.try_one

    def counted(one: Accelerator, device: str) -> Outcome:
        made.append(one.name)
        return real(one, device)

    monkeypatch.setattr(packages, "try_one", counted)
    return made


def remembered(folder: Path, torch: str = "2.11.0") -> Remembered:
    """As a new process reads it."""
    packages._once.cache_clear()
    said: list[str] = []
    machine = Machine("a GPU", "9.0", "580", "13.0", torch, "3.6.0", "3.12", "0.1")
    return Remembered(machine, folder.parent / "machines", said.append)


def test_a_second_run_does_not_try_again(folder: Path, tries: list[str]) -> None:
    put(folder, "def answer(): return 42")
    for _ in range(3):
        assert trial("fake", "cpu", remembered(folder)) == Outcome("fake", "works", "9.1")
        assert why_not("fake", "cpu", remembered(folder)) is None
    assert tries == ["fake"]


def test_another_version_build_or_pytorch_is_tried_again(folder: Path, tries: list[str]) -> None:
    put(folder, "raise ImportError('broken')")
    assert trial("fake", "cpu", remembered(folder)).status == "import failed"
    put(folder, "def answer(): return 41")  # another build of the same version
    assert trial("fake", "cpu", remembered(folder)).status == "does not work here"
    put(folder, "def answer(): return 42", "9.2")
    assert trial("fake", "cpu", remembered(folder)) == Outcome("fake", "works", "9.2")
    assert trial("fake", "cpu", remembered(folder, torch="2.13.0")).status == "works"
    assert len(tries) == 4


@pytest.mark.parametrize("said", ["CUDA out of memory", "no answer"])
def test_what_may_be_gone_at_the_next_try_is_not_remembered(folder: Path, tries: list[str], said: str) -> None:
    if said == "no answer":
        put(folder, "import os, signal\ndef answer(): os.kill(os.getpid(), signal.SIGKILL)")
    else:
        put(folder, f"def answer(): raise RuntimeError({said!r})")
    assert trial("fake", "cpu", remembered(folder)).status == "does not work here"
    assert trial("fake", "cpu", remembered(folder)).status == "does not work here"
    assert len(tries) == 2


TOO_LONG = Outcome("fake", "does not work here", "9.1", "no answer within 180 s")


def test_a_trial_without_an_answer_is_waited_for_once_and_the_remedy_is_said(
    folder: Path, tries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "def answer(): return 42")
    monkeypatch.setattr(packages, "try_one", lambda one, device: (tries.append(one.name), TOO_LONG)[1])
    for _ in range(2):
        no = why_not("fake", "cpu", remembered(folder))
        assert no == No(
            "fake 9.1 is installed and was tried, with no answer within 180 s",
            "run `dynotune engaged --forget fake`, so that it is tried again",
        )
    assert tries == ["fake"]
    remembered(folder).forget("fake")
    assert why_not("fake", "cpu", remembered(folder)) is not None
    assert tries == ["fake", "fake"]


def test_what_works_when_it_is_tried_by_hand_is_taken_again(
    folder: Path, tries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "def answer(): return 42")
    remembered(folder).keep_trial("fake", asdict(TOO_LONG), ["fake-kernels"])
    monkeypatch.setattr(packages.Remembered, "here", lambda device: remembered(folder))
    packages.keep_what_works([TOO_LONG], "cpu")
    assert why_not("fake", "cpu", remembered(folder)) is not None
    packages.keep_what_works([Outcome("fake", "works", "9.1")], "cpu")
    assert why_not("fake", "cpu", remembered(folder)) is None
    assert tries == []


def test_a_module_without_a_version_is_tried_once_a_process(folder: Path, tries: list[str]) -> None:
    put(folder, "def answer(): return 42", version=None)
    mine = remembered(folder)
    assert [trial("fake", "cpu", mine).status for _ in range(2)] == ["works", "works"]
    assert trial("fake", "cpu", remembered(folder)).status == "works"
    assert len(tries) == 2


def test_another_version_of_what_it_depends_on_voids_a_trial(
    folder: Path, tries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = packages.ACCELERATORS
    monkeypatch.setattr(packages, "ACCELERATORS", (replace(one, beside=("fake-compiler",)),))
    put(folder, "def answer(): return 41")
    for version, expected in (("1", 1), ("1", 1), ("2", 2)):
        for info in folder.glob("fake_compiler*"):
            shutil.rmtree(info)
        info = folder / f"fake_compiler-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-compiler\nVersion: {version}\n")
        assert trial("fake", "cpu", remembered(folder)).status == "does not work here"
        assert len(tries) == expected


def test_what_is_missing_is_said_without_a_trial(folder: Path, tries: list[str]) -> None:
    assert missing("fake") == No("fake is not installed", "install fake", expected=True)
    put(folder, "raise ImportError")
    assert missing("fake") is None
    assert not tries


CASES = {
    "not installed": (
        Outcome("liger-kernel", "not installed"),
        No("liger-kernel is not installed", "run `pip install 'dynotune[liger]'`", expected=True),
    ),
    "another PyTorch": (
        Outcome("flash-attn", "import failed", "2.8", "ImportError: /a/b/x.so: undefined symbol: _ZN3c105ErrorC2E"),
        No(
            "flash-attn 2.8 is installed and cannot be imported: it is built for another PyTorch than PyTorch 2.11.0 with"
            " CUDA 13.0 (ImportError: x.so: undefined symbol: _ZN3c105ErrorC2E)",
            "install a build of flash-attn for PyTorch 2.11.0 with CUDA 13.0, or uninstall it",
        ),
    ),
    "other libraries": (
        Outcome("xformers", "import failed", "1", "ImportError: x.so: undefined symbol: cublasLtFoo"),
        No(
            "xformers 1 is installed and cannot be imported: it is built against other libraries than those of PyTorch"
            " 2.11.0 with CUDA 13.0 (ImportError: x.so: undefined symbol: cublasLtFoo)",
            "install a build of xformers for PyTorch 2.11.0 with CUDA 13.0, or uninstall it",
        ),
    ),
    "another CUDA": (
        Outcome("flash-attn 3", "import failed", None, "OSError: libcudart.so.12: cannot open shared object file"),
        No(
            "flash-attn 3 is installed and cannot be imported: it is built for CUDA 12, and here is PyTorch 2.11.0 with CUDA"
            " 13.0 (OSError: libcudart.so.12: cannot open shared object file)",
            "install a build of flash-attn 3 for PyTorch 2.11.0 with CUDA 13.0, or uninstall it",
        ),
    ),
    "a missing module": (
        Outcome("flash-attn 4", "import failed", "4", "ModuleNotFoundError: No module named 'einops'"),
        No(
            "flash-attn 4 4 is installed and cannot be imported: it needs `einops`, which is not there",
            "install `einops`",
        ),
    ),
    "not made for each other": (
        Outcome(
            "flash-attn 4", "import failed", "4", "ImportError: quack 1 is made for dsl==4.6, and 4.8 is installed"
        ),
        No(
            "flash-attn 4 4 is installed and is not run: ImportError: quack 1 is made for dsl==4.6, and 4.8 is installed",
            "run `pip install --pre --upgrade flash-attn-4 quack-kernels`, so that their versions agree",
        ),
    ),
    "another GPU": (
        Outcome("flash-attn", "does not work here", "2.8", "RuntimeError: no kernel image is available for execution"),
        No(
            "flash-attn 2.8 is installed and imports, but does not work here: it holds no kernels for this GPU"
            " (RuntimeError: no kernel image is available for execution)",
            "install a build of flash-attn for this GPU",
        ),
    ),
    "it ends the process": (
        Outcome("xformers", "does not work here", "1", "the process was ended by signal 11"),
        No(
            "xformers 1 is installed and imports, but does not work here: the process was ended by signal 11",
            "install a build of xformers for PyTorch 2.11.0 with CUDA 13.0, or uninstall it",
        ),
    ),
    "no GPU": (
        Outcome("liger-kernel", "not tried", "0.8.5", "it needs a GPU, and none is here"),
        No("liger-kernel 0.8.5 needs a GPU, and there is none", expected=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_in_words_with_the_remedy(case: str) -> None:
    outcome, no = CASES[case]
    assert refusal(outcome, HERE) == no


def test_every_optional_package_has_a_remedy() -> None:
    for one in ACCELERATORS:
        if one.packages:
            assert refusal(Outcome(one.name, "not installed"), HERE).remedy
