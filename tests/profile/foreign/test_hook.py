"""Promise: the hook waits for one module, and whoever imports it, or has a `sitecustomize` of his own, notices nothing."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.profile.foreign.run import HOOK, environment

PRETENDED = """
class Optimizer:
    pass
"""


def python(code: str, folder: Path, *flags: str, path: str = "") -> tuple[str, list[dict[str, object]]]:
    """Output of a program under the hook, and what its processes told."""
    variables = environment({"PATH": os.environ["PATH"], "PYTHONPATH": path}, folder)
    done = subprocess.run(
        [sys.executable, *flags, "-c", code], env=variables, capture_output=True, text=True, check=True, cwd=folder
    )
    told = folder / "events.jsonl"
    return done.stdout.strip(), [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_every_process_of_python_is_told_and_none_without_torch_gets_further(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])"
    _, events = python(code, tmp_path)
    assert [one["event"] for one in events] == ["python", "python"]
    (tmp_path / "alone").mkdir()
    assert python("pass", tmp_path / "alone", "-I")[1] == []


def test_the_script_sees_neither_our_folder_nor_our_finder_in_its_modules(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("here = __loader__, __spec__.loader\n__version__ = '0'\n")
    code = (
        "import sys, torch; print(any('foreign' in p for p in sys.path), *(type(one).__name__ for one in torch.here))"
    )
    out, events = python(code, tmp_path, path=str(tmp_path))
    assert out == "False SourceFileLoader SourceFileLoader"
    assert [one["event"] for one in events][:2] == ["python", "torch"]


def test_asking_whether_torch_is_there_does_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '0'\n")
    code = "import importlib.util as u, sys; print(u.find_spec('torch').origin, 'torch' in sys.modules)"
    out, events = python(code, tmp_path, path=str(tmp_path))
    assert out == f"{tmp_path / 'torch.py'} False"
    assert [one["event"] for one in events] == ["python"]


def test_a_torch_that_cannot_be_hooked_is_imported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("value = 7\n__version__ = '0'\n")
    out, events = python("import torch; print(torch.value)", tmp_path, path=str(tmp_path))
    assert out == "7"
    assert events[-1]["event"] == "failed"


def test_the_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = __file__\n")
    out, events = python("import sitecustomize; print(mine, sitecustomize.__file__)", tmp_path, path=str(tmp_path))
    own = str(tmp_path / "sitecustomize.py")
    assert out == f"{own} {own}"
    assert events


def test_no_package_that_lies_beside_ours_can_be_imported(tmp_path: Path) -> None:
    """A script that does without an optional package must not find ours."""
    (tmp_path / "torch.py").write_text("__version__ = '0'\n")
    code = (
        "import torch, dynotune, importlib.util as u\n"
        "print(u.find_spec('only_timed'), u.find_spec('dynotune.errors').name)"
    )
    out, _ = python(code, tmp_path, path=str(tmp_path))
    assert out == "None dynotune.errors"


@pytest.mark.parametrize("name", ["sitecustomize.py", "only_timed.py"])
def test_the_hook_is_written_for_old_pythons(name: str) -> None:
    ast.parse((HOOK / name).read_text(), feature_version=(3, 8))


def test_one_that_needs_a_new_python_would_be_noticed() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("match 1:\n    case 1: pass\n", feature_version=(3, 8))


def test_without_the_variable_nothing_is_hooked(tmp_path: Path) -> None:
    assert importlib.util.find_spec("dynotune.profile.foreign.inside.begin") is not None
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print([type(one).__name__ for one in sys.meta_path])"],
        env={"PYTHONPATH": str(HOOK), "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "AfterImport" not in done.stdout


def test_only_steps_are_timed_where_our_package_cannot_be_imported(tmp_path: Path) -> None:
    """As in an old Python: a `dynotune` of another version comes first, without what is needed."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '1.9'\nfrom torch import optim, cuda\n")
    (tmp_path / "torch" / "cuda.py").write_text("def is_available(): return False\n")
    (tmp_path / "torch" / "optim").mkdir()
    (tmp_path / "torch" / "optim" / "__init__.py").write_text("from torch.optim import optimizer\n")
    (tmp_path / "torch" / "optim" / "optimizer.py").write_text(
        "hooks = []\ndef register_optimizer_step_post_hook(hook): hooks.append(hook)\n"
    )
    (tmp_path / "dynotune").mkdir()
    (tmp_path / "dynotune" / "__init__.py").write_text("")
    (tmp_path / "options.json").write_text('{"steps": 5, "traced": 2, "warm_up": 3, "stop": true}')
    code = (
        "from torch.optim.optimizer import hooks\nclass One: pass\none = One()\nfor i in range(100):\n"
        "    [hook(one, (), {}) for hook in hooks]\nprint('not reached')\n"
    )
    out, events = python(code, tmp_path, path=str(tmp_path))
    assert out == ""
    assert "No module named 'dynotune.profile'" in str(events[-1]["only_timed"])
    (observed,) = tmp_path.glob("observed-*.json")
    assert len(json.loads(observed.read_text())["seconds"]) == 8
