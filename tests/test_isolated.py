"""Promise: trying packages runs nothing of the folder that Dynotune is started in, and shows them no secret."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune import accelerators
from dynotune.audit.read import environment
from dynotune.isolated import environment as handed_on
from dynotune.isolated import run_isolated


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose modules have names of the standard library and of packages, and say when they are run."""
    for name in ("json", "colorsys", "peft", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", ".", os.environ.get("PYTHONPATH", ""))))
    return tmp_path


def test_modules_of_the_working_folder_are_not_run(hostile: Path) -> None:
    for code in ("import colorsys, json", "import peft_that_is_nowhere"):
        environment._run(code, 60)
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import colorsys'])"
    assert run_isolated(nested, 60).returncode == 0
    assert not (hostile / "ran").exists()
    subprocess.run([sys.executable, "-c", "import colorsys"], check=True)
    assert "colorsys" in (hostile / "ran").read_text(), "the trap is none"


def test_accelerators_are_tried_outside_of_it_as_well(hostile: Path) -> None:
    torch = "class _Torch: pass\n"
    (hostile / "torch.py").write_text(f"open({str(hostile / 'ran')!r}, 'a').write('torch')\n{torch}")
    one = accelerators.Accelerator("made up", "no_such_module", "", load="raise SystemExit(3)")
    accelerators._run(one, "", "cpu")
    assert not (hostile / "ran").exists()


def test_dynotune_itself_is_found_there(hostile: Path) -> None:
    done = run_isolated("import dynotune.errors, os; print(os.listdir())", 60)
    assert (done.returncode, done.stdout.strip()) == (0, b"[]")


def test_secrets_are_not_handed_on() -> None:
    given = {
        "HF_TOKEN": "x",
        "WANDB_API_KEY": "x",
        "PROXY": "http://me:pass@host",
        "CUDA_VISIBLE_DEVICES": "0",
        "HOME": "/root",
        "PYTHONSTARTUP": "start.py",
        "PYTHONPATH": os.pathsep.join(("", "src", "/opt/site")),
    }
    kept = handed_on(given)
    assert {"CUDA_VISIBLE_DEVICES", "HOME"} < set(kept)
    assert not {"HF_TOKEN", "WANDB_API_KEY", "PROXY", "PYTHONSTARTUP"} & set(kept)
    assert kept["PYTHONPATH"].split(os.pathsep)[0] == "/opt/site"
    assert all(Path(entry).is_absolute() for entry in kept["PYTHONPATH"].split(os.pathsep))
