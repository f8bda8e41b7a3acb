"""A Python launcher makes flags of a configuration's keys, and leaves out values that count as false: the program that it
starts runs with its own defaults instead."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.given_configs import configurations_given
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "dict": dict,
    "tuple": tuple,
}


@dataclass(frozen=True, slots=True)
class _Maker:
    """Where flags are made of keys and values."""

    node: ast.For | ast.comprehension
    key: str
    value: str
    test: ast.expr


def values_dropped_as_false(project: Project) -> Iterator[Said]:
    for launcher in project.scripts:
        if "--{" not in launcher.source and not re.search(r"[\"']--[\"']\s*\+", launcher.source):
            continue
        target = _target(launcher, project)
        if target is None:
            continue
        defaults = _defaults(target, project)
        for maker in _makers(launcher.tree):
            for config in configurations_given(launcher, project):
                lost = [
                    (key, value, defaults[key])
                    for key, value in config.values.items()
                    if key in defaults and _is_lost(maker, value, defaults[key].value)
                ]
                if lost:
                    places = [config.places.get(key, Place(config.file, key=key)) for key, *_ in lost]
                    yield _finding(launcher, maker, target, lost, places)
                    break


def _is_lost(maker: _Maker, value: Any, default: Any) -> bool:
    plain = isinstance(value, bool | int | float) and not value
    return plain and not isinstance(default, Unknown) and bool(default) and _made(maker, value) is False


def _target(launcher: Script, project: Project) -> Script | None:
    """The one program of the project that the launcher's text names."""
    words = [
        node.value for node in ast.walk(launcher.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {word for text in words for word in text.split()}
    found = [
        script
        for script in project.scripts
        if script is not launcher
        and any(
            word.endswith(".py")
            and (script.file == word.removeprefix("./") or script.file.endswith(f"/{word}"))
            or ("." in word and script.file.endswith(f"{word.replace('.', '/')}.py"))
            for word in named
        )
    ]
    return found[0] if len(found) == 1 else None


def _defaults(target: Script, project: Project) -> dict[str, Setting]:
    """Of its flags, by key."""
    return {
        name.lstrip("-").replace("-", "_"): setting
        for one in (*imported(target, project), target)
        for name, setting in one.constants.items()
        if name.startswith("--")
    }


def _makers(tree: ast.Module) -> Iterator[_Maker]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            names = _names(node.target, node.iter)
            tests = [one.test for one in ast.walk(node) if isinstance(one, ast.If)]
            if names is not None and tests:
                yield _Maker(node, *names, tests[0])
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            one = node.generators[0]
            names = _names(one.target, one.iter)
            if names is not None and one.ifs and _is_flag(node.elt, names[0], node.generators[1:]):
                yield _Maker(one, *names, one.ifs[0])


def _names(target: ast.expr, source: ast.expr) -> tuple[str, str] | None:
    """`key, value` of a loop over `.items()`."""
    if not ast.unparse(source).endswith(".items()") or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return None
    key, value = target.elts
    return (key.id, value.id) if isinstance(key, ast.Name) and isinstance(value, ast.Name) else None


def _is_flag(node: ast.AST, key: str, more: Sequence[ast.comprehension] = ()) -> bool:
    """It makes `--key`."""
    text = " ".join([ast.unparse(node), *(ast.unparse(one.iter) for one in more)])
    return re.search(rf"--\{{{key}\b|[\"']--[\"'] \+ \(?{key}\b", text) is not None


def _made(maker: _Maker, value: Any) -> bool | None:
    """Whether a flag is made of this value; None: that cannot be told."""
    if isinstance(maker.node, ast.comprehension):
        truths = [_truth(test, maker.value, value) for test in maker.node.ifs]
        return None if None in truths else all(truths)
    found = _run(maker.node.body, maker, value)
    return None if found is None else found is True


def _run(body: Sequence[ast.stmt], maker: _Maker, value: Any) -> bool | str | None:
    """True: a flag is made; `goes on`: none is so far; `stops`: none will be."""
    for node in body:
        if isinstance(node, ast.If):
            truth = _truth(node.test, maker.value, value)
            if truth is None:
                return None
            found = _run(node.body if truth else node.orelse, maker, value)
            if found != "goes on":
                return found
        elif isinstance(node, ast.Continue):
            return "stops"
        elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) and _is_flag(node, maker.key):
            return True
        elif isinstance(node, ast.For | ast.While | ast.Try | ast.With | ast.Break | ast.Return):
            return None
    return "goes on"


def _truth(test: ast.expr, name: str, value: Any) -> bool | None:
    """Of a condition on the value alone; None: it asks something else."""
    match test:
        case ast.Name(id=asked) if asked == name:
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            found = _truth(inner, name, value)
            return None if found is None else not found
        case ast.BoolOp(op=op, values=parts):
            truths = [_truth(part, name, value) for part in parts]
            if isinstance(op, ast.And):
                return False if False in truths else None if None in truths else True
            return True if True in truths else None if None in truths else False
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=asked), kinds]) if asked == name:
            named = [one.id for one in ast.walk(kinds) if isinstance(one, ast.Name)]
            return any(isinstance(value, _KINDS[one]) for one in named) if all(one in _KINDS for one in named) else None
        case ast.Compare(left=ast.Name(id=asked), ops=[op], comparators=[ast.Constant(value=other)]) if asked == name:
            if isinstance(op, ast.Is | ast.IsNot):
                return (value is other) == isinstance(op, ast.Is)
            if isinstance(op, ast.Eq | ast.NotEq):
                return bool((value == other) == isinstance(op, ast.Eq))
    return None


def _finding(
    launcher: Script,
    maker: _Maker,
    target: Script,
    lost: Sequence[tuple[str, Any, Setting]],
    places: Sequence[Place],
) -> Finding:
    shown = ", ".join(f"`{key}: {str(value).lower()}`" for key, value, _ in lost[:3])
    instead = ", ".join(f"`{setting.value}`" for *_, setting in lost[:3])
    return Finding(
        f"`if {ast.unparse(maker.test)}` leaves out what counts as false: {shown} never {'reach' if len(lost) > 1 else 'reaches'}"
        f" `{target.file}`, which runs with its default{'s' * (len(lost) > 1)} {instead}.",
        place=place_of(launcher, maker.test),
        also=(*places, *(setting.place for *_, setting in lost)),
        evidence=Evidence(Level.RESOLVED, {"lost": {key: value for key, value, _ in lost}}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, "Leave out only `None`, and write `False` out (`--key False`, or `--no-key`)."),
    )
