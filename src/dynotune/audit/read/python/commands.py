"""Functions whose parameters a library makes options of a command: click's decorators, Typer, fire."""

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynotune.audit.place import Place
from dynotune.audit.read.python.declared import COMMAND_LINE
from dynotune.audit.read.python.module import Function, Module, Scope
from dynotune.audit.read.python.value import Value, unknown

if TYPE_CHECKING:
    from dynotune.audit.read.python.evaluator import Evaluator


@dataclass(frozen=True, slots=True)
class Option:
    flag: str
    """With its dashes."""

    default: Value
    place: Place
    """Of the decorator, under the flag's name."""


def option(node: Function, name: str, scope: Scope, evaluator: "Evaluator") -> Option | None:
    """The one of click's that gives a parameter its value; None: there is none."""
    module = evaluator.module
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or module.dotted(decorator.func) not in (
            "click.option",
            "click.argument",
        ):
            continue
        texts = [one.value for one in decorator.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        long = next((one for one in texts if one.startswith("--")), texts[0] if texts else "")
        flag = long.partition("/")[0]
        called = next((one for one in texts if not one.startswith("-")), flag.lstrip("-").replace("-", "_"))
        if called != name:
            continue
        given = {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}
        if "default" in given:
            default = evaluator.value(given["default"], scope)
        elif "/" in long or "is_flag" in given:
            default = Value(False)
        elif "required" in given or module.dotted(decorator.func) == "click.argument":
            default = unknown(COMMAND_LINE)
        else:
            default = Value(None)
        return Option(flag, default, module.place(decorator, flag))
    return None


def starts(node: Function, module: Module) -> bool:
    """Whether Typer or fire makes a command of the function."""
    for name in ("run", "Fire"):
        for site in module.calls_by_name.get(name, ()):
            of = module.dotted(site.node.func)
            given = site.node.args[:1]
            if of in ("typer.run", "fire.Fire", "fire.core.Fire") and given and isinstance(given[0], ast.Name):
                return given[0].id == node.name
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "command"
        for one in node.decorator_list
    )
