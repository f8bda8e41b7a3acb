"""What stands in a function or a file by itself: names in functions within are others."""

import ast
from collections.abc import Iterator

FUNCTIONS: tuple[type[ast.AST], ...] = (ast.FunctionDef, ast.AsyncFunctionDef)


def own_nodes(room: ast.AST, apart: tuple[type[ast.AST], ...] = FUNCTIONS) -> Iterator[ast.AST]:
    """The room and all nodes in it, but for those that stand `apart`, with what is in them."""
    waiting = [room]
    for node in waiting:
        yield node
        waiting += [one for one in ast.iter_child_nodes(node) if not isinstance(one, apart)]
