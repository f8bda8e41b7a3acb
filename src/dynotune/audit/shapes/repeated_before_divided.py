"""Some rows are repeated (a rare class is drawn again) or stand beside altered copies of themselves, and rows are divided
for evaluation afterwards."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import together

_JOINS = re.compile(r"(?:^|\.)(?:concat|concatenate_datasets|ConcatDataset|chain|vstack|append)$")
_AGAIN = re.compile(r"replace=True")
_RESAMPLES = re.compile(r"\.fit_resample$")

Given = Sequence[tuple[str, ast.expr]]


def repeated_before_divided(
    given: Given, scope: ast.AST, script: Script, project: Project
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What repeats rows, and what divides them. given: names and what they are given, in the order of the scope."""
    for node, rows in _divisions(scope):
        last = max(
            (
                (value.lineno, value)
                for name, value in _pairs(given, scope)
                if name == rows and value.lineno < node.lineno
            ),
            key=lambda one: one[0],
            default=None,
        )
        if last is None:
            continue
        if _repeats(last[1], given) or _by_a_function(last[1], script, project):
            yield last[1], node
            continue
        put = _beside_itself(scope, rows) if ast.unparse(last[1]) in ("[]", "list()") else None
        if put is not None and last[1].lineno < put.lineno < node.lineno:
            yield put, node


def _divisions(scope: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Calls that divide rows, and pairs of slices (`rows[:k]`, `rows[k:]`), with the name of the rows."""
    bounds: dict[tuple[str, str], tuple[str, ast.expr]] = {}
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("train_test_split", "random_split")):
            rows = _divided(node)
            if rows is not None:
                yield node, rows
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.lineno < 1:
            continue
        part = node.slice
        if isinstance(part, ast.Slice) and (part.lower is None) is not (part.upper is None):
            bound = part.upper or part.lower
            side = "front" if part.lower is None else "back"
            key = node.value.id, ast.unparse(bound) if bound is not None else ""
            other = bounds.setdefault(key, (side, node))
            if other[0] != side:
                yield node, node.value.id


_ALTERS = re.compile(
    r"augment|over_?sampl|up_?sampl|paraphras|perturb|nois[ey]|variants?|duplicat|copies|mutat", re.IGNORECASE
)


def _by_a_function(value: ast.expr, script: Script, project: Project) -> bool:
    """`augment(rows)`, `rows.map(augment, batched=True)`, of a function of the project that makes several rows of each."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "shuffle":
        value = value.func.value
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func).rpartition(".")[2]
    if name == "map" and value.args and "batched=True" in ast.unparse(value):
        name = ast.unparse(value.args[0]).rpartition(".")[2]
    for one in together(script, project) if name.isidentifier() else ():
        for node in one.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return _makes_several(node)
    return False


def _makes_several(function: ast.FunctionDef) -> bool:
    """Of each row: the row itself and another, or several where its name says what they are."""
    told = _ALTERS.search(f"{function.name} {ast.get_docstring(function) or ''}") is not None
    for loop in (one for one in ast.walk(function) if isinstance(one, ast.For)):
        inner = any(isinstance(one, ast.For) and one is not loop and _puts(one) for one in ast.walk(loop))
        puts = _puts(loop)
        itself = any(ast.unparse(one) == ast.unparse(loop.target) for one in puts)
        if (inner or len(puts) > 1) and (told or itself):
            return True
    return False


def _puts(loop: ast.For, into: str = "") -> list[ast.expr]:
    """What it appends or yields. into: only to this list."""
    found = []
    for node in ast.walk(loop):
        if isinstance(node, ast.Yield) and node.value is not None and not into:
            found.append(node.value)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if node.func.attr in ("append", "extend") and into in ("", ast.unparse(node.func.value)):
            found.append(node.args[0])
    return found


def _beside_itself(scope: ast.AST, rows: str) -> ast.expr | None:
    """The altered copy that a loop puts behind each row: `out.append(row); out.append(drop_words(row))`."""
    for loop in (one for one in own_nodes(scope) if isinstance(one, ast.For)):
        if any(isinstance(one, ast.If | ast.Continue) for one in loop.body):
            continue
        puts, itself = _puts(loop, rows), ast.unparse(loop.target)
        others = [
            one
            for one in puts
            if ast.unparse(one) != itself
            and any(isinstance(part, ast.Name) and part.id == itself for part in ast.walk(one))
        ]
        if len(puts) > len(others) and others:
            return others[0]
    return None


def _pairs(given: Given, scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Also of `X, y = sampler.fit_resample(X, y)`."""
    yield from given
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            first = node.targets[0].elts[0] if node.targets[0].elts else None
            if isinstance(first, ast.Name):
                yield first.id, node.value


def _divided(call: ast.Call) -> str | None:
    """The name of the rows: of sklearn's function, or of a data set's method."""
    if (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and not _is_module(call.func.value.id)
    ):
        return call.func.value.id
    return call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else None


def _is_module(name: str) -> bool:
    return name in ("model_selection", "sklearn", "ms")


def _repeats(value: ast.expr, given: Given) -> bool:
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("sample", "shuffle", "reset_index", "map")
        and not _AGAIN.search(ast.unparse(value))
    ):
        value = value.func.value
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func)
    if _RESAMPLES.search(name):
        return any(re.search(r"OverSampler", ast.unparse(one)) for _, one in given)
    if not _JOINS.search(name) or not value.args:
        return False
    parts = _elements(value.args[0])
    texts = [ast.unparse(one) for one in parts]
    drawn = [one for name, one in given if name in texts] + list(parts)
    return len(texts) > len(set(texts)) or any(_AGAIN.search(ast.unparse(one)) for one in drawn)


def _elements(node: ast.expr) -> list[ast.expr]:
    """Of `[a, b, b]`, `[a] + [b] * 3`: the last one twice."""
    if isinstance(node, ast.List | ast.Tuple):
        return list(node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _elements(node.left) + _elements(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        times = node.right.value if isinstance(node.right, ast.Constant) else 0
        return _elements(node.left) * (2 if isinstance(times, int) and times > 1 else 1)
    return []
