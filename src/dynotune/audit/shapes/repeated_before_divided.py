"""Some rows are repeated (a rare class is drawn again), and rows are divided for evaluation afterwards."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.rooms import own_nodes

_JOINS = re.compile(r"(?:^|\.)(?:concat|concatenate_datasets|ConcatDataset|chain|vstack|append)$")
_AGAIN = re.compile(r"replace=True")
_RESAMPLES = re.compile(r"\.fit_resample$")

Given = Sequence[tuple[str, ast.expr]]


def repeated_before_divided(given: Given, scope: ast.AST) -> Iterator[tuple[ast.expr, ast.Call]]:
    """What repeats rows, and the call that divides them. given: names and what they are given, in the order of the scope."""
    for node in own_nodes(scope):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("train_test_split"):
            continue
        rows = _divided(node)
        if rows is None:
            continue
        last = max(
            (
                (value.lineno, value)
                for name, value in _pairs(given, scope)
                if name == rows and value.lineno < node.lineno
            ),
            key=lambda one: one[0],
            default=None,
        )
        if last is not None and _repeats(last[1], given):
            yield last[1], node


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
