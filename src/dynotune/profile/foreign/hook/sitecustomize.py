"""Runs in every Python process that a profiled command starts, before its own code: waits for PyTorch to be imported.

This folder comes first in PYTHONPATH, so Python finds this file where it looks for the user's own `sitecustomize`, which is
run behind it as if this were not here. Nothing of the script changes but what `inside` hooks into PyTorch. Of all that lies
beside Dynotune only `dynotune` itself can be imported, and only where the script's own Python has none.

Written for any Python 3.8 and newer, by the standard library alone: what it profiles may not be the Python that Dynotune
runs in.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import Any

VARIABLE = "DYNOTUNE_PROFILE_FOLDER"  # as in `foreign.protocol`, which an old Python cannot import
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib takes longer to load than all of this)
OURS = "dynotune"


def tell(event: str, **more: Any) -> None:
    """A line for the process that started the command. Lines this short are appended whole."""
    line = json.dumps({"event": event, "pid": os.getpid(), **more}) + "\n"
    try:
        with open(os.path.join(os.environ[VARIABLE], "events.jsonl"), "a", encoding="utf-8") as file:  # noqa: PTH118, PTH123
            file.write(line)
    except OSError:
        return  # the folder has gone: nobody waits for what this process sees any more


class OurPackage(importlib.abc.MetaPathFinder):
    """Finds `dynotune` where this file lies. Stands last, so that one of the script's own Python comes first."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.PathFinder.find_spec(name, [self.root]) if name == OURS else None


class AfterImport(importlib.abc.MetaPathFinder):
    """Lets the others find `name`, and calls `done` with its module as soon as that has been executed."""

    def __init__(self, name: str, done: Any) -> None:
        self.name, self.done, self.asking = name, done, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, self.done)
        return spec


class Loader(importlib.abc.Loader):
    """The module's own loader, and then `done`. The module never sees it."""

    def __init__(self, loader: Any, done: Any) -> None:
        self.loader, self.done = loader, done

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.done(module)


def torch_is_there(torch: Any) -> None:
    """The script must not notice where we fail: PyTorch is imported all the same."""
    root = HERE
    for _ in range(4):  # hook, foreign, profile, dynotune
        root = os.path.dirname(root)  # noqa: PTH120
    sys.meta_path.append(OurPackage(root))
    try:
        from dynotune.profile.foreign.inside.begin import begin

        begin()
        tell("torch", version=str(torch.__version__))
    except Exception as error:  # noqa: BLE001  (a guest in the script's process)
        why = f"{type(error).__name__}: {error}"
        tell("torch", version=str(torch.__version__), only_timed=why)
        try:
            only_timed(why)
        except Exception as last:  # noqa: BLE001
            tell("failed", why=f"{type(last).__name__}: {last}")


def only_timed(why: str) -> None:
    """What is left where our package does not work in this Python: the seconds of each step."""
    path = os.path.join(HERE, "only_timed.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location("_dynotune_only_timed", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.begin(os.environ[VARIABLE], why)


def the_users_own() -> None:
    """The `sitecustomize` that would have been found without this folder."""
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or os.curdir) != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get(VARIABLE):
    tell("python", version=sys.version.split()[0], program=sys.executable)
    sys.meta_path.insert(0, AfterImport("torch", torch_is_there))
the_users_own()
