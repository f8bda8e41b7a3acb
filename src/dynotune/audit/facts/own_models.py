"""Whether what a name holds is made by a class of the program's own, which has no method of transformers' models."""

import ast
from collections.abc import Sequence

from dynotune.audit.facts.script import Script

_WRAPS = frozenset({"DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel", "compile", "DataParallel"})


def is_of_ones_own(model: str, script: Script, near: Sequence[Script]) -> bool:
    """`net` of `net = DDP(Grader(NAME).cuda())`, where the program defines `Grader(nn.Module)`. near: its files."""
    own = {
        node.name
        for one in near
        for node in ast.walk(one.tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).rpartition(".")[2] == "Module" for base in node.bases)
        and not any(isinstance(part, ast.FunctionDef) and part.name == "save_pretrained" for part in node.body)
    }
    made = {
        node.targets[0].id: node.value
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    return _is_made_by(made.get(model.partition(".")[0]), own, made, 0)


def _is_made_by(value: ast.expr | None, own: set[str], made: dict[str, ast.expr], depth: int) -> bool:
    """Through what wraps it, and what it moves by: `.cuda()`, `.to(device)`."""
    if depth > 4 or value is None:
        return False
    if isinstance(value, ast.Name):
        return _is_made_by(made.get(value.id), own, made, depth + 1)
    if not isinstance(value, ast.Call):
        return False
    last = ast.unparse(value.func).rpartition(".")[2]
    if last in own:
        return True
    if last in _WRAPS and value.args:
        return _is_made_by(value.args[0], own, made, depth + 1)
    moves = isinstance(value.func, ast.Attribute) and last in (
        "cuda",
        "to",
        "train",
        "eval",
        "half",
        "bfloat16",
        "float",
    )
    return moves and isinstance(value.func, ast.Attribute) and _is_made_by(value.func.value, own, made, depth + 1)
