"""Flags that a function under `fire.Fire` does not have: fire runs it without, and complains when it is done."""

import ast
from collections.abc import Sequence

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python.bindings import dotted

_OF_FIRE = frozenset({"help", "h", "interactive", "separator", "completion", "verbose", "trace"})


def flags_that_fire_drops(launch: Launch, script: Script, scripts: Sequence[Script]) -> tuple[list[Setting], str]:
    """The flags, and why they go nowhere; none where the function cannot be told, or takes them."""
    function = _function(script, scripts) if "fire" in script.source else None
    if function is None:
        return [], ""
    given = function.args
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    if given.kwarg is not None:
        return [], ""
    lost = [
        setting
        for name, setting in launch.flags.items()
        if name not in names and name not in _OF_FIRE and len(name) > 1 and name.removeprefix("no") not in names
    ]
    why = f"`{function.name}` of `{script.file}` has no parameter of this name: fire runs it without, and complains when it"
    return lost, f"{why} is done"


def _function(script: Script, scripts: Sequence[Script]) -> ast.FunctionDef | None:
    """The one that the file's only `fire.Fire(...)` is given by its name, in this file or another of the project."""
    calls = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and dotted(node.func) in ("fire.Fire", "Fire")
    ]
    if len(calls) != 1 or len(calls[0].args) != 1 or calls[0].keywords or not isinstance(calls[0].args[0], ast.Name):
        return None
    name = calls[0].args[0].id
    homes = [script] if name not in script.imports else scripts
    found = [node for one in homes for node in one.tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[0] if len(found) == 1 and not found[0].decorator_list else None
