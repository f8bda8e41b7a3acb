"""Arithmetic of constants, bounded: nothing audited can make it slow or large."""

import ast
import operator
from collections.abc import Callable
from typing import Any

LARGEST_BITS = 256
LONGEST_TEXT = 10_000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


class NoValueError(Exception):
    """The constants have no result; the text is the end of a sentence."""


def binary(kind: ast.operator, left: Any, right: Any) -> Any:
    """Of numbers and texts. Raises `NoValueError`."""
    numbers = all(isinstance(side, (int, float)) for side in (left, right))
    texts = isinstance(left, str) and isinstance(right, str) and isinstance(kind, ast.Add)
    if not numbers and not texts:
        raise NoValueError("its operands are no numbers")
    if isinstance(kind, ast.Pow) and numbers and (abs(right) > 64 or abs(left) > 2**32):
        raise NoValueError("the power is too large to compute")
    act = _BINARY.get(type(kind))
    if act is None:
        raise NoValueError(f"`{type(kind).__name__}` is not computed")
    try:
        result = act(left, right)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise NoValueError(f"computing it fails: {error}") from error
    if isinstance(result, int) and result.bit_length() > LARGEST_BITS:
        raise NoValueError("it is too large")
    if isinstance(result, str) and len(result) > LONGEST_TEXT:
        raise NoValueError("it is too long")
    if isinstance(result, complex):
        raise NoValueError("it is no real number")
    return result


def unary(kind: ast.unaryop, value: Any) -> Any:
    if isinstance(kind, ast.Not):
        return not value
    if isinstance(value, (int, float)) and isinstance(kind, (ast.USub, ast.UAdd)):
        return -value if isinstance(kind, ast.USub) else value
    raise NoValueError("its operand is no number")


def compare(kind: ast.cmpop, left: Any, right: Any) -> bool:
    try:
        if isinstance(kind, (ast.In, ast.NotIn)):
            inside = left in right
            return inside if isinstance(kind, ast.In) else not inside
        return bool(_COMPARE[type(kind)](left, right))
    except TypeError as error:
        raise NoValueError("the two cannot be compared") from error


def converted(name: str, values: list[Any]) -> Any:
    """`int("3")`, `max(1, 2)`, ... of plain values. Raises `NoValueError`."""
    acts: dict[str, Callable[..., Any]] = {
        "int": int,
        "float": float,
        "str": str,
        "bool": bool,
        "len": len,
        "max": max,
        "min": min,
        "abs": abs,
        "round": round,
    }
    act = acts.get(name)
    if act is None or not values or len(values) > 8:
        raise NoValueError(f"`{name}` is not computed")
    if any(isinstance(value, str) and len(value) > 1000 for value in values):
        raise NoValueError("it is too long")
    try:
        return act(*values)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise NoValueError(f"computing it fails: {error}") from error
