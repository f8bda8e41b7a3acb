"""Rows that a function of the project's own fills, and the number of tokens that it fills them to."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.bins_of_whole_rows import filled_by_whole_rows
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import imported
from dynotune.audit.place import Place


def filled_to(job: Job, project: Project) -> tuple[int, Place] | None:
    """Tokens of a filled row, with the call that fills them: `ds.map(pack, batched=True, fn_kwargs={"size": 4096})`,
    `pack(ds, 4096)`. None: nothing that can be followed fills rows."""
    for script in (one for one in project.scripts if one.file in job.files):
        fillers = {
            node.name: node
            for one in (script, *imported(script, project))
            for node in one.tree.body
            if isinstance(node, ast.FunctionDef) and filled_by_whole_rows(node) is not None
        }
        for node in ast.walk(script.tree) if fillers else ():
            if not isinstance(node, ast.Call):
                continue
            by_map = isinstance(node.func, ast.Attribute) and node.func.attr == "map" and bool(node.args)
            name = ast.unparse(node.args[0] if by_map else node.func).rpartition(".")[2]
            if name in fillers and (size := _size(fillers[name], node, by_map, script)) is not None:
                return size, place_of(script, node)
    return None


def _size(function: ast.FunctionDef, call: ast.Call, by_map: bool, script: Script) -> int | None:
    """Of the name that the function compares a row's length with."""
    given = dict(_given(function, call, by_map))
    for limit in _limits(function):
        value: ast.expr | None = given.get(limit.id, limit) if isinstance(limit, ast.Name) else limit
        if isinstance(value, ast.Name):
            held = script.constants.get(value.id)
            number = held.value if held is not None else None
        else:
            number = value.value if isinstance(value, ast.Constant) else None
        if type(number) is int and number >= 128:
            return number
    return None


def _limits(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp) and len(node.comparators) == 1:
            yield node.comparators[0]


def _given(function: ast.FunctionDef, call: ast.Call, by_map: bool) -> Iterator[tuple[str, ast.expr]]:
    """Its parameters with what they get: by default, by place, by keyword."""
    names = [one.arg for one in function.args.args]
    yield from zip(reversed(names), reversed(function.args.defaults), strict=False)
    if not by_map:
        yield from zip(names, call.args, strict=False)
        yield from ((word.arg, word.value) for word in call.keywords if word.arg)
        return
    more: Sequence[ast.expr] = [word.value for word in call.keywords if word.arg == "fn_kwargs"]
    for held in more:
        yield from _entries(held).items()


def _entries(node: ast.expr) -> Mapping[str, ast.expr]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
        return {word.arg: word.value for word in node.keywords if word.arg}
    if isinstance(node, ast.Dict):
        return {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    return {}
