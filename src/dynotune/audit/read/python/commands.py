"""Functions that a library makes commands of (click, typer, fire, tyro): their parameters, as flags with defaults."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dynotune.audit.read.python.bindings import dotted
from dynotune.audit.read.python.files import module_of
from dynotune.audit.read.python.module import FUNCTIONS, Function, Module
from dynotune.audit.read.python.modules import Modules

_STARTS = frozenset(
    {"typer.run", "fire.Fire", "Fire", "tyro.cli", "jsonargparse.CLI", "jsonargparse.auto_cli", "CLI", "defopt.run"}
)


@dataclass(frozen=True, slots=True)
class Parameter:
    flag: str
    """`--max-len`."""

    default: ast.expr | None
    """None: the command line must say, or nothing does."""

    at: ast.AST


@lru_cache(maxsize=64)
def commands(module: Module) -> dict[ast.AST, dict[str, Parameter]]:
    """By the function, and by the parameter's name."""
    started = {
        node.args[0].id
        for site in module.sites
        for node in (site.node,)
        if dotted(node.func) in _STARTS and node.args and isinstance(node.args[0], ast.Name)
    }
    found: dict[ast.AST, dict[str, Parameter]] = {}
    for node in module.tree.body:
        if not isinstance(node, FUNCTIONS):
            continue
        marks = [dotted(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]
        if any(mark == "click.command" or mark.endswith(".option") for mark in marks):
            found[node] = dict(_of_click(node))
        elif node.name in started or any(_is_typers(mark, module) for mark in marks):
            found[node] = dict(_of_a_signature(node))
    return found


def started_by(function: Function, module: Module, others: Modules) -> str:
    """The file whose command a function of the top level is: its own, or one that imports it and hands it to a library that
    makes commands (`fire.Fire(run)` in `__main__.py`); empty: it is none's that was read."""
    if function in commands(module):
        return module.file
    asked = (module.file, function.name, len(others))
    if asked not in others.starters:
        others.starters[asked] = next(_handing_over(function.name, module, others), "")
    return others.starters[asked]


def _handing_over(function: str, module: Module, others: Modules) -> Iterator[str]:
    for name in sorted({one.rpartition(".")[2] for one in _STARTS}):
        for other, site in others.calls_of(name):
            if other is module or dotted(site.node.func) not in _STARTS or not site.node.args:
                continue
            if module_of(other.dotted(site.node.args[0]), other, others) == (module, function):
                yield other.file


def _is_typers(mark: str, module: Module) -> bool:
    """`app.command`, of an application that the file makes."""
    app, _, last = mark.rpartition(".")
    bound = module.top.bindings.get(app, ()) if last == "command" else ()
    return any(isinstance(one.value, ast.Call) and dotted(one.value.func) in ("typer.Typer", "Typer") for one in bound)


def _of_click(function: Function) -> Iterator[tuple[str, Parameter]]:
    for mark in function.decorator_list:
        if not isinstance(mark, ast.Call) or not dotted(mark.func).endswith("option"):
            continue
        names = [one.value for one in mark.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        long = next((one for one in names if one.startswith("--")), "")
        given = {keyword.arg: keyword.value for keyword in mark.keywords}
        flag = long.partition("/")[0].strip()
        name = next((one for one in names if not one.startswith("-")), flag.lstrip("-").replace("-", "_").lower())
        switch = given.get("is_flag")
        off = isinstance(switch, ast.Constant) and switch.value is True and "default" not in given
        default = ast.copy_location(ast.Constant(False), mark) if off else given.get("default")
        if flag:
            yield name, Parameter(flag, default, mark)


def _of_a_signature(function: Function) -> Iterator[tuple[str, Parameter]]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip(reversed(arguments), reversed(function.args.defaults), strict=False))
    defaults |= {
        one: default
        for one, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is not None
    }
    for one in (*arguments, *function.args.kwonlyargs):
        yield one.arg, Parameter(f"--{one.arg}", told_to_typer(defaults.get(one)), one)


def told_to_typer(default: ast.expr | None) -> ast.expr | None:
    """`3` of `epochs: int = typer.Option(3, help=...)`, nothing of `typer.Option(...)`; else the expression itself."""
    if not isinstance(default, ast.Call) or dotted(default.func) not in ("typer.Option", "typer.Argument", "Option"):
        return default
    given = next((keyword.value for keyword in default.keywords if keyword.arg == "default"), None)
    found = default.args[0] if default.args else given
    return None if isinstance(found, ast.Constant) and found.value is ... else found
