"""Whether a loop has put what a name holds on the device by a line of it."""

import ast
import re

from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place

_MOVES = re.compile(r"\.(?:to|cuda)\(")


def was_moved(script: Script, name: str, loop: Place, line: int) -> bool:
    """`batch = {k: v.to(device) for k, v in batch.items()}`, `x, y = x.cuda(), y.cuda()` above the line, or a batch of a
    loader that Accelerate has prepared. loop: whose lines are looked at."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and loop.line <= node.lineno < line:
            value = ast.unparse(node.value)
            if name in _names(node.targets[0]) and _MOVES.search(value) and re.search(rf"\b{re.escape(name)}\b", value):
                return "cpu" not in value
        elif isinstance(node, ast.For) and node.lineno == loop.line and name in _names(node.target):
            prepared = re.findall(r"\.prepare\(([^)]*)\)", script.source)
            over = {one.id for one in ast.walk(node.iter) if isinstance(one, ast.Name)}
            if any(re.search(rf"\b{re.escape(one)}\b", given) for one in over for given in prepared):
                return True
    return False


def root(node: ast.AST) -> str:
    """`batch` of `batch["labels"][:, 1:].ne(-100)` and of `(batch["labels"] != -100)`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Compare | ast.BinOp):
            node = node.left
        elif isinstance(node, ast.UnaryOp):
            node = node.operand
        else:
            return ""
    return node.id


def _names(target: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
