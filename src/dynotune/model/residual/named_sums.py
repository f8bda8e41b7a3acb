"""A layer's forward whose sums are calls, so that something else can answer them.

`residual + hidden_states` stands in a layer's code and in no module, where it could be replaced. So the code is read, each
sum of variables or of calls becomes `self._dynotune_sums(number, a, b)`, and the one instance gets the forward that comes of
it. All else is the layer's own code, with its own globals, names and line numbers; no other model uses what is changed.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

ANSWERS = "_dynotune_sums"
"""Attribute of a module: what is called with a sum's number in the code, and its two terms."""


@cache
def with_named_sums(forward: Callable[..., Any]) -> tuple[Callable[..., Any], int] | str:
    """The function that comes of `forward`, one of a class of modules, and how many sums it has; or why there is none."""
    inner = inspect.unwrap(forward)
    if not isinstance(inner, FunctionType):
        return "its forward is no Python function"
    if inner.__closure__:
        return "its forward refers to variables around it"
    try:
        source = textwrap.dedent(inspect.getsource(inner))
        tree = ast.parse(source)
    except (OSError, SyntaxError, TypeError) as error:
        return f"the source of its forward cannot be read ({error})"
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or not function.args.args:
        return "its forward is no plain function"
    naming = _Naming(function.args.args[0].arg)
    function.body = [naming.visit(line) for line in function.body]
    if not naming.sums:
        return "its forward adds nothing that has a name"
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None  # not asked for, and perhaps not importable
    function.returns = None
    ast.increment_lineno(tree, inner.__code__.co_firstlineno - 1)
    names: dict[str, Any] = {}
    code = compile(ast.fix_missing_locations(tree), inner.__code__.co_filename, "exec")
    exec(code, inner.__globals__, names)  # noqa: S102  # the layer's own code, imported and run in any case
    return names[function.name], naming.sums


class _Naming(ast.NodeTransformer):
    def __init__(self, this: str) -> None:
        self.this = this
        self.sums = 0

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        terms = node.left, node.right
        if not isinstance(node.op, ast.Add) or not all(isinstance(term, ast.Name | ast.Call) for term in terms):
            return node
        this = ast.Name(self.this, ast.Load())
        call = ast.Call(ast.Attribute(this, ANSWERS, ast.Load()), [ast.Constant(self.sums), *terms], [])
        self.sums += 1
        return ast.copy_location(call, node)
