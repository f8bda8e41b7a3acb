"""Whether an expression is a batch's `input_ids` as they stand, however they are copied."""

import ast
from collections.abc import Mapping, Sequence

from dynotune.audit.facts.rooms import own_nodes

_COPIES = frozenset(
    {
        "copy",
        "clone",
        "detach",
        "to",
        "cuda",
        "long",
        "contiguous",
        "squeeze",
        "flatten",
        "tolist",
        "numpy",
        "cpu",
        "int",
    }
)
"""Methods that give the same ids."""

_MAKES = frozenset(
    {
        *("list", "torch.tensor", "torch.LongTensor", "torch.as_tensor", "torch.stack", "torch.clone", "np.array"),
        *("copy.deepcopy", "copy.copy", "deepcopy", "np.copy", "numpy.array"),
    }
)
_DEEP = 8

Given = Mapping[str, Sequence[ast.expr]]


def given_in(room: ast.AST) -> Given:
    """What each name of a function is assigned."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _give(target, node.value, found)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            _give(node.target, node.value, found)
        elif isinstance(node, ast.AugAssign):
            found.setdefault(ast.unparse(node.target), []).append(ast.Constant(None))
    return found


def _give(target: ast.expr, value: ast.expr, found: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Name):
        found.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            _give(one, part, found)


def is_input(node: ast.expr, given: Given, depth: int = 0) -> bool:
    """All of it; whether something is set otherwise behind is for the caller to see."""
    deeper = depth + 1
    if depth > _DEEP:
        return False
    match node:
        case ast.Attribute(attr="input_ids") | ast.Subscript(slice=ast.Constant(value="input_ids")):
            return True
        case ast.Name(id="input_ids") if "input_ids" not in given:
            return True
        case ast.Name(id=name):
            values = given.get(name, ())
            return len(values) == 1 and is_input(values[0], given, deeper)
        case ast.Subscript(slice=ast.Slice(lower=None, upper=None, step=None) | ast.Constant(value=0)):
            return is_input(node.value, given, deeper)
        case ast.Call(func=ast.Attribute(attr=method), args=args) if method in _COPIES and _plain(args):
            assert isinstance(node.func, ast.Attribute)
            return is_input(node.func.value, given, deeper)
        case ast.Call(args=[first, *_]) if ast.unparse(node.func) in _MAKES:
            return is_input(first, given, deeper)
        case ast.ListComp(elt=element, generators=[one]) if not one.ifs and isinstance(one.target, ast.Name):
            rows = {**given, one.target.id: [one.iter]}
            return is_input(element, rows, deeper)
    return False


def _plain(args: Sequence[ast.expr]) -> bool:
    """Arguments that are a device, a type or an axis."""
    return all(isinstance(one, ast.Name | ast.Attribute | ast.Constant) for one in args)
