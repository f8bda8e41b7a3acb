"""A figure is called a speed by the key that it is recorded or logged under."""

import ast
import re
from collections.abc import Iterator

SPEED = re.compile(r"tok\w*[_/ ]*(per|/|p)[_ ]*s(ec(ond)?)?\b|\btps\b|throughput|tokens?/s", re.IGNORECASE)


def recorded_as_speed(value: ast.expr, counted: str) -> str:
    """The key (`{"tokens_per_s": done * batch * max_len / secs}`, `log(tok_s=...)`) of a quotient that has the count in it;
    empty: none has."""
    return next(
        (
            key
            for key, held in _entries(value)
            if SPEED.search(key) and counted in ast.unparse(held) and _is_divided(held, counted)
        ),
        "",
    )


def _entries(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(value):
        if isinstance(node, ast.Dict):
            for key, held in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, held
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value


def _is_divided(held: ast.expr, counted: str) -> bool:
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div | ast.FloorDiv)
        and counted in ast.unparse(node.left)
        for node in ast.walk(held)
    )
