"""`scaled_dot_product_attention` gets a mask that is causal and nothing else, which keeps it from the flash kernel."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import on_device, place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_FILLED = frozenset({"ones", "ones_like", "full", "full_like"})
_SAME = frozenset(
    {"view", "reshape", "unsqueeze", "to", "bool", "float", "expand", "type_as", "cuda", "logical_not", "contiguous"}
)
_DEEP = 8


def causal_mask_written_out(script: Script, project: Project) -> Iterator[Said]:
    if "scaled_dot_product_attention(" not in script.source or not re.search(
        r"tri[lu]|square_subsequent", script.source
    ):
        return
    program = connected(script, project)
    sources = [code(one) for one in program]
    if not any(TRAINS.search(one) for one in sources) or not any(on_device(one) for one in program):
        return
    changed = _changed(script)
    buffers = {name: value for name, value in _buffers(script) if name not in changed}
    for room in ast.walk(script.tree):
        if not isinstance(room, ast.FunctionDef) or "scaled_dot_product_attention(" not in ast.unparse(room):
            continue
        given = {name: value for name, value in _given(room).items() if name not in changed}
        for node in own_nodes(room):
            mask = _mask(node)
            if mask is not None and _is_causal(mask, {**buffers, **given}, set(given)):
                yield _finding(script, node, mask)
                return


def _mask(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("scaled_dot_product_attention"):
        return None
    named = next((word.value for word in node.keywords if word.arg == "attn_mask"), None)
    return named or (node.args[3] if len(node.args) > 3 else None)


def _buffers(script: Script) -> Iterator[tuple[str, ast.expr]]:
    """`self.register_buffer("mask", torch.tril(...))`, `self.mask = torch.tril(...)`."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.register_buffer" and len(node.args) > 1:
            if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                yield f"self.{node.args[0].value}", node.args[1]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            yield ast.unparse(node.targets[0]), node.value


def _given(room: ast.FunctionDef) -> Mapping[str, ast.expr]:
    """Names of one value."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AugAssign):
            found.setdefault(ast.unparse(node.target), []).extend([node.value, node.value])
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _is_causal(node: ast.expr, given: Mapping[str, ast.expr], own: set[str], depth: int = 0) -> bool:
    """A triangle, cut to the length of the row, and turned to another type or shape."""
    if depth > _DEEP:
        return False
    if _is_triangle(node):
        return True
    deeper = depth + 1
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if ast.unparse(node) in given:
            return _is_causal(given[ast.unparse(node)], given, own, deeper)
        case ast.Subscript() if _from_the_first(node.slice):
            return _is_causal(node.value, given, own, deeper)
        case ast.Call(func=ast.Attribute(attr=name)) if name in _SAME and isinstance(node.func, ast.Attribute):
            return _is_causal(node.func.value, given, own, deeper)
        case ast.UnaryOp():
            return _is_causal(node.operand, given, own, deeper)
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant()]):
            return _is_causal(node.left, given, own, deeper)
    return False


def _changed(script: Script) -> set[str]:
    """What parts of were set to another value: `mask[:, :prefix] = True`, `mask.masked_fill_(...)`."""
    found = set()
    for node in ast.walk(script.tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        found |= {ast.unparse(one.value) for one in targets if isinstance(one, ast.Subscript)}
        func = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(func, ast.Attribute)
            and func.attr.endswith("_")
            and isinstance(func.value, ast.Name | ast.Attribute)
        ):
            found.add(ast.unparse(func.value))
    return found


def _from_the_first(index: ast.expr) -> bool:
    """`[:n, :n]`, `[None]`. Rows from another place on are of a cache: queries are fewer than keys, and `is_causal` says
    another thing."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        isinstance(one, ast.Constant)
        or (isinstance(one, ast.Slice) and (one.lower is None or ast.unparse(one.lower) == "0"))
        for one in parts
    )


def _is_triangle(node: ast.expr) -> bool:
    """`torch.tril(torch.ones(n, n))`, `torch.full(..., -inf).triu(1)`, `generate_square_subsequent_mask(n)`."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "generate_square_subsequent_mask":
        return True
    if name not in ("tril", "triu"):
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    filled = node.args[0] if node.args and isinstance(node.args[0], ast.Call) else owner
    return isinstance(filled, ast.Call) and ast.unparse(filled.func).rpartition(".")[2] in _FILLED


def _finding(script: Script, call: ast.AST, mask: ast.expr) -> Finding:
    return Finding(
        f"`attn_mask={ast.unparse(mask)[:50]}` is the causal triangle and nothing else: with a mask,"
        " `scaled_dot_product_attention` takes no flash kernel, reads the mask and works on the pairs that it rules out as"
        " well; `is_causal=True` says the same without one.",
        place=place_of(script, call),
        evidence=Evidence(Level.TEXT, {"mask": ast.unparse(mask)[:80]}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            "Pass `is_causal=True`, and no `attn_mask`.",
            effort=Effort.LINE,
            accuracy="Sums round otherwise.",
            measure="dynotune profile -- python train.py",
        ),
    )
