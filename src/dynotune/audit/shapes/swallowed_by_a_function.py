"""A function that fire makes a command of takes every flag in its `**more`, and does nothing with them."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python.bindings import dotted

_SHOWS = re.compile(r"(?:^|\.)(?:print|pprint|info|debug|log|warning)$")


def swallowed_by_a_function(launch: Launch, script: Script) -> tuple[list[Setting], str]:
    """Flags of the command that go nowhere, and the function; none where it uses what is left over, or refuses it."""
    if "Fire(" not in script.source:
        return [], ""
    started = {
        node.args[0].id
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and dotted(node.func) in ("fire.Fire", "Fire") and node.args
        if isinstance(node.args[0], ast.Name)
    }
    functions = [one for one in script.tree.body if isinstance(one, ast.FunctionDef) and one.name in started]
    if len(functions) != 1 or functions[0].args.kwarg is None:
        return [], ""
    (function,) = functions
    assert function.args.kwarg is not None
    if _uses(function, function.args.kwarg.arg):
        return [], ""
    taken = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    lost = [one for name, one in launch.flags.items() if name not in taken and name not in ("help", "local_rank")]
    return lost, function.name


def _uses(function: ast.FunctionDef, name: str) -> bool:
    """It reads the rest for more than to show it."""
    shown = shown_in(function)
    return any(isinstance(one, ast.Name) and one.id == name and id(one) not in shown for one in ast.walk(function))


def shown_in(function: ast.FunctionDef) -> set[int]:
    """Parts of calls that print or log; not of what they call for it (`print(train(lr))`)."""
    return {
        id(part)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _SHOWS.search(ast.unparse(node.func))
        for given in (*node.args, *(keyword.value for keyword in node.keywords))
        if not any(isinstance(one, ast.Call) for one in ast.walk(given))
        for part in ast.walk(given)
    }


_STARTS = frozenset({"typer.run", "fire.Fire", "Fire", "tyro.cli"})


def unread_parameters(launch: Launch, script: Script) -> tuple[list[Setting], str]:
    """Flags of the command that are parameters of a function which click, typer, fire or tyro starts, and which it never
    uses but to show them; and the function."""
    if "locals()" in script.source:
        return [], ""
    for function in started_functions(script):
        unused = {one.arg for one in unused_parameters(function)}
        lost = [one for name, one in launch.flags.items() if name in unused and name not in SAID_ELSEWHERE]
        if lost:
            return lost, function.name
    return [], ""


def unused_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """Those that the function uses for nothing but to show them."""
    shown = shown_in(function)
    used = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and id(one) not in shown}
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return [one for one in every if one.arg not in used]


def started_functions(script: Script) -> Iterator[ast.FunctionDef]:
    """Functions of the file that click, typer, fire or tyro makes commands of."""
    if not re.search(r"\b(?:click|typer|fire|tyro)\b", script.source):
        return
    started = {
        node.args[0].id
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and dotted(node.func) in _STARTS and node.args
        if isinstance(node.args[0], ast.Name)
    }
    for function in script.tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        marks = [dotted(one.func if isinstance(one, ast.Call) else one) for one in function.decorator_list]
        if function.name in started or any(one.endswith((".command", ".option")) for one in marks):
            yield function


SAID_ELSEWHERE = frozenset({"seed", "precision", "mixed_precision", "bf16", "fp16", "local_rank"})
"""MSR003 and PRC002 say what comes of them."""
