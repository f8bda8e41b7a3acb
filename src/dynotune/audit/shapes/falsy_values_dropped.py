"""A launcher in Python makes flags of a configuration, and leaves out what is false or zero: the script's default stays."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

FEW = 3
"""Keys of a configuration that are options of a script, from which on it is that script's."""

_TYPES: Mapping[str, type | tuple[type, ...]] = {"bool": bool, "int": int, "float": float, "str": str, "list": list}


def falsy_values_dropped(project: Project) -> Iterator[Said]:
    for launcher in project.scripts:
        if "--" not in launcher.source or ".items()" not in launcher.source:
            continue
        for test, drops in _left_out(launcher):
            for config in project.configs:
                lost = _lost(config, drops, launcher, project)
                if lost:
                    yield _finding(launcher, test, config, lost)
                    return


def _finding(launcher: Script, test: ast.expr, config: ConfigFile, lost: Mapping[str, Setting]) -> Finding:
    shown = ", ".join(f"`{key}: {_as_yaml(config.values[key])}`" for key in list(lost)[:3])
    defaults = ", ".join(f"`{one.value}`" for one in list(lost.values())[:3])
    return Finding(
        f"`{launcher.file}` makes flags of `{config.file}` and leaves out what is false or zero (`{ast.unparse(test)}`):"
        f" {shown} never {'arrives' if len(lost) == 1 else 'arrive'}, and the script runs with its"
        f" {'default' if len(lost) == 1 else 'defaults'} {defaults}.",
        place=place_of(launcher, test),
        also=(
            *(config.places.get(key, Place(config.file)) for key in lost),
            *(one.place for one in lost.values()),
        ),
        evidence=Evidence(Level.RESOLVED, {"left out": list(lost)}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL, "Leave out only what is not given: `if value is not None`.", effort=Effort.LINE
        ),
    )


def _as_yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lost(config: ConfigFile, drops: Sequence[Any], launcher: Script, project: Project) -> dict[str, Setting]:
    """Keys whose values are left out, and whose script has another default."""
    keys = [key for key in config.values if isinstance(key, str)]
    found: dict[str, Setting] = {}
    for script in project.scripts:
        if script is launcher:
            continue
        options = {
            name.lstrip("-").replace("-", "_"): setting
            for one in (*imported(script, project), script)
            for name, setting in one.constants.items()
            if name.startswith("--")
        }
        named = [key for key in keys if key in options]
        if len(named) < FEW or 2 * len(named) < len(keys):
            continue
        for key in named:
            value, default = config.values[key], options[key].value
            left = any(type(value) is type(one) and value == one for one in drops)
            if left and not isinstance(default, Unknown) and default is not None and default != value:
                found[key] = options[key]
    return found


def _left_out(launcher: Script) -> Iterator[tuple[ast.expr, Sequence[Any]]]:
    """Tests in loops over a mapping that make `--key`, with the values that no flag is made of."""
    for node in ast.walk(launcher.tree):
        if isinstance(node, ast.For) and (names := _pair(node.target, node.iter)):
            tests = [one.test for one in ast.walk(node) if isinstance(one, ast.If)]
            body: Sequence[ast.AST] = node.body
        elif isinstance(node, ast.ListComp | ast.GeneratorExp) and (
            names := _pair(node.generators[0].target, node.generators[0].iter)
        ):
            tests = list(node.generators[0].ifs)
            body = [node.elt]
            if tests:
                whole = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
                held = ast.If(whole, [ast.Expr(node.elt)], [])
                body = [held]
        else:
            continue
        key, value = names
        if not any(_makes_a_flag(one, key) for top in body for one in ast.walk(top)):
            continue
        drops = [one for one in (False, 0, 0.0) if _emits(body, key, value, one) is False]
        mine = next((one for one in tests if value in {n.id for n in ast.walk(one) if isinstance(n, ast.Name)}), None)
        if drops and mine is not None and _emits(body, key, value, 7) is True:
            yield mine, drops


def _pair(target: ast.expr, source: ast.expr) -> tuple[str, str] | None:
    """`key, value` of `for key, value in config.items()`."""
    over = isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr == "items"
    if not over or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return None
    first, second = target.elts
    return (first.id, second.id) if isinstance(first, ast.Name) and isinstance(second, ast.Name) else None


def _makes_a_flag(node: ast.AST, key: str) -> bool:
    """`f"--{key}"`, `"--" + key`, `"--%s" % key`, `"--{}".format(key)`."""
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return isinstance(first, ast.Constant) and str(first.value).startswith("--") and _names(node, key)
    if isinstance(node, ast.BinOp | ast.Call):
        left = node.left if isinstance(node, ast.BinOp) else getattr(node.func, "value", None)
        return isinstance(left, ast.Constant) and str(left.value).startswith("--") and _names(node, key)
    return False


def _names(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


def _emits(body: Sequence[ast.AST], key: str, value: str, held: Any) -> bool | None:
    """Whether a flag is made where the value is `held`; None: that cannot be told."""
    for node in body:
        if isinstance(node, ast.If):
            verdict = _holds(node.test, value, held)
            if verdict is None:
                return None
            inner = _emits(node.body if verdict else node.orelse, key, value, held)
            if inner is not False:
                return inner
            if verdict and isinstance(node.body[-1], ast.Continue | ast.Break | ast.Return | ast.Raise):
                return False
        elif any(_makes_a_flag(one, key) for one in ast.walk(node)):
            return True
        elif (
            isinstance(node, ast.Assign | ast.AugAssign)
            and _names(node, value)
            and any(
                isinstance(one, ast.Name) and one.id == value and isinstance(one.ctx, ast.Store)
                for one in ast.walk(node)
            )
        ):
            return None  # it is made to something else
    return False


def _holds(test: ast.expr, name: str, held: Any) -> bool | None:
    """A condition on the value alone; None: it asks for something else."""
    match test:
        case ast.Name(id=asked) if asked == name:
            return bool(held)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            verdict = _holds(inner, name, held)
            return None if verdict is None else not verdict
        case ast.BoolOp(op=op, values=values):
            verdicts = [_holds(one, name, held) for one in values]
            ending = isinstance(op, ast.Or)
            if ending in verdicts:
                return ending
            return None if None in verdicts else not ending
        case ast.Compare(left=ast.Name(id=asked), ops=[op], comparators=[other]) if asked == name:
            return _compared(op, other, held)
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=asked), kinds]) if asked == name:
            names = [ast.unparse(one) for one in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])]
            return any(isinstance(held, _TYPES[one]) for one in names if one in _TYPES)
    return None


def _compared(op: ast.cmpop, other: ast.expr, held: Any) -> bool | None:
    try:
        value = ast.literal_eval(other)
    except ValueError:
        return None
    match op:
        case ast.Is() | ast.IsNot():
            return (held is value) is isinstance(op, ast.Is)
        case ast.Eq() | ast.NotEq():
            return (held == value) is isinstance(op, ast.Eq)
        case ast.In() | ast.NotIn() if isinstance(value, tuple | list | set):
            return (held in value) is isinstance(op, ast.In)
    return None
