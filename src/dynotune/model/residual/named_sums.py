"""A layer's forward whose sums are calls, so that something else can answer them.

`residual + hidden_states` stands in a layer's code and in no module, where it could be replaced. So the code is read, each
sum of variables or of calls becomes `self._dynotune_sums(number, a, b)`, and what comes of it is compiled. All else is the
layer's own: instructions, globals, defaults, names and line numbers. Where the file is not what was imported, that is seen.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

ANSWERS = "_dynotune_sums"
"""Attribute of a module: what is called with a sum's number in the code, and its two terms."""

CHECKPOINTS = "transformers.modeling_layers"
"""Whose wrapper around a layer's forward computes it again in the backward pass where it is asked to, and is plain else."""

NONE = "its code adds nothing that has a name"


@cache
def with_named_sums(forward: Callable[..., Any]) -> FunctionType | str:
    """The function that comes of `forward`, that of a class of layers; or why there is none (`NONE`: it has no such sum)."""
    inner: Any = forward
    while getattr(inner, "__globals__", {}).get("__name__") == CHECKPOINTS and hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not isinstance(inner, FunctionType):
        return "its class's forward is no Python function"
    if hasattr(inner, "__wrapped__"):
        return "its class's forward is wrapped"
    if inner.__closure__:
        return "its class's forward refers to variables around it"
    try:
        function, *others = ast.parse(textwrap.dedent(inspect.getsource(inner))).body
    except (OSError, SyntaxError, TypeError, ValueError) as error:
        return f"the source of its class's forward cannot be read ({error})"
    if not isinstance(function, ast.FunctionDef) or others or function.decorator_list:
        return "its class's forward is no plain function"
    own = inner.__code__
    same = _compiled(function, own)
    if same is None or _reads(same) != _reads(own):
        return "its file is not what was imported"
    arguments = [*function.args.posonlyargs, *function.args.args]
    if not arguments:
        return "its class's forward is no plain function"
    naming = _Naming(arguments[0].arg)
    function.body = [naming.visit(line) for line in function.body]
    code = _compiled(function, own)
    if not naming.sums or code is None:
        return NONE
    changed = FunctionType(code, inner.__globals__, inner.__name__, inner.__defaults__)
    changed.__kwdefaults__ = inner.__kwdefaults__
    changed.__qualname__, changed.__module__ = inner.__qualname__, inner.__module__
    return changed


def _compiled(function: ast.FunctionDef, own: CodeType) -> CodeType | None:
    """The code of `function`, whose source begins where that of `own` does. Compiled, not run."""
    first = own.co_firstlineno - function.lineno
    whole = ast.fix_missing_locations(ast.Module([function], []))
    ast.increment_lineno(whole, first)
    try:
        made = compile(whole, own.co_filename, "exec", dont_inherit=True)
    finally:
        ast.increment_lineno(whole, -first)
    return next((one for one in made.co_consts if isinstance(one, CodeType) and one.co_name == function.name), None)


def _reads(code: CodeType) -> tuple[Any, ...]:
    """What two codes of one source have in common."""
    constants = [one for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, repr(constants)


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

    def _leave(self, node: ast.AST) -> ast.AST:
        """What has variables of its own, where the layer's first argument may be another."""
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _leave
