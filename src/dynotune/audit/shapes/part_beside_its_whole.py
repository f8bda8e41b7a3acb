"""A function, or a dictionary of splits, that hands on rows whole for training and a part of the same ones to evaluate."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import together
from dynotune.audit.place import Place
from dynotune.audit.shapes.drawn_from import OF_TESTS, drawn_from, is_a_look, trains_on


@dataclass(frozen=True, slots=True)
class Beside:
    part: str
    """The expression that evaluates."""

    whole: str
    place: Place
    trained: Place


def parts_beside_wholes(script: Script, project: Project) -> Iterator[Beside]:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.FunctionDef):
            yield from _returned(node, script, project)
            yield from _held(node, script, project)
        if isinstance(node, ast.FunctionDef | ast.Module):
            yield from _of_splits(node, script)


def _returned(function: ast.FunctionDef, script: Script, project: Project) -> Iterator[Beside]:
    """`return rows, watched`, where whoever calls it trains on the first and evaluates on the second."""
    given = _given(function)
    for node in own_nodes(function):
        if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Tuple):
            continue
        for part, one in enumerate(node.value.elts):
            value, whole = _part(one, given)
            first = next((at for at, other in enumerate(node.value.elts) if ast.unparse(other) == whole), None)
            if not whole or value is None or first is None or _changed(whole, value, function):
                continue
            if (used := _used(function.name, first, part, script, project)) is not None:
                yield Beside(ast.unparse(value), whole, place_of(script, value), used)


def _held(function: ast.FunctionDef, script: Script, project: Project) -> Iterator[Beside]:
    """`self.val = self.train.select(range(300))`, where the object's rows are handed to a trainer."""
    for node in own_nodes(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute) or is_a_look(node.value):
            continue
        part, whole = node.targets[0].attr, drawn_from(node.value)
        if (
            not whole.startswith("self.")
            or ast.unparse(node.targets[0]) == whole
            or _changed(whole, node.value, function)
        ):
            continue
        for one in together(script, project):
            for call in ast.walk(one.tree):
                words = (
                    {word.arg: ast.unparse(word.value) for word in call.keywords} if isinstance(call, ast.Call) else {}
                )
                trains, tests = words.get("train_dataset", ""), words.get("eval_dataset", "")
                owner = trains.rpartition(".")[0]
                if owner and trains == f"{owner}.{whole.removeprefix('self.')}" and tests == f"{owner}.{part}":
                    yield Beside(ast.unparse(node.value), whole, place_of(script, node.value), place_of(one, call))
                    return


def _of_splits(scope: ast.FunctionDef | ast.Module, script: Script) -> Iterator[Beside]:
    """`DatasetDict({"train": rows, "validation": rows.select(range(200))})`."""
    given = _given(scope)
    for node in own_nodes(scope):
        if not isinstance(node, ast.Dict):
            continue
        splits: Mapping[object, ast.expr] = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        trained = splits.get("train")
        for name, one in splits.items() if trained is not None else ():
            value, whole = _part(one, given)
            tests = OF_TESTS.search(str(name)) is not None
            if trained is None or value is None or not tests or not whole or whole != ast.unparse(trained):
                continue
            if not _changed(whole, value, scope):
                yield Beside(ast.unparse(value), whole, place_of(script, value), place_of(script, trained))


def _given(scope: ast.AST) -> Mapping[str, Sequence[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return found


def _part(node: ast.expr, given: Mapping[str, Sequence[ast.expr]]) -> tuple[ast.expr | None, str]:
    """The expression that draws it, itself or behind a name that is given once, and what it is drawn from."""
    values = given.get(node.id, ()) if isinstance(node, ast.Name) else (node,)
    if len(values) != 1 or is_a_look(values[0]):
        return None, ""
    return values[0], drawn_from(values[0])


def _changed(whole: str, part: ast.expr, scope: ast.AST) -> bool:
    """What is left may get the name afterwards, or lose rows in place."""
    for node in own_nodes(scope):
        if getattr(node, "lineno", 0) < part.lineno:
            continue
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            if any(ast.unparse(one) == whole for top in targets for one in ast.walk(top) if isinstance(one, ast.expr)):
                return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (f"{whole}.remove", f"{whole}.pop"):
            return True
    return False


def _used(name: str, whole: int, part: int, script: Script, project: Project) -> Place | None:
    """Where a caller trains on the one and evaluates on the other."""
    for one in together(script, project):
        if name not in one.source:
            continue
        for scope in (one.tree, *(node for node in ast.walk(one.tree) if isinstance(node, ast.FunctionDef))):
            for node in own_nodes(scope):
                if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
                    continue
                called = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).rpartition(".")[2] == name
                names = [ast.unparse(target) for target in node.targets[0].elts]
                if called and len(names) > max(whole, part) and _trains(names[whole], names[part], scope):
                    return place_of(one, node)
    return None


def _trains(whole: str, part: str, scope: ast.AST) -> bool:
    calls = [node for node in own_nodes(scope) if isinstance(node, ast.Call)]
    words = {(word.arg, ast.unparse(word.value)) for call in calls for word in call.keywords}
    trains = any(trains_on(call, whole) for call in calls) or "train" in whole
    return trains and (("eval_dataset", part) in words or OF_TESTS.search(part) is not None)
