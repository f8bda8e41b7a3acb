"""A context of automatic mixed precision is made, and no `with` enters it."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_MAKES = re.compile(r"(?:^|\.)(?:autocast|amp_autocast|autocast_smart_context_manager|compute_loss_context_manager)$")
_LOOPS = re.compile(r"\.backward\(|\btraining_step\b")


def autocast_never_entered(script: Script, project: Project) -> Iterator[Said]:
    """`amp = torch.autocast(...)` whose name is read nowhere, and `torch.autocast(...)` as a statement of its own."""
    if "autocast" not in script.source:
        return
    near = connected(script, project)
    if not any(_LOOPS.search(code(one)) for one in near):
        return
    entered = sum(_enters(one) for one in near)
    for node in ast.walk(script.tree):
        made = _made(node)
        name = _given_to(node) if made is not None else ""
        if made is None or (name and any(_reads(name, one.tree) for one in near)) or entered:
            continue
        yield Finding(
            f"`{ast.unparse(made)[:70]}` is made and never entered"
            + (f": nothing reads `{name}`" if name else ", for it stands in no `with`")
            + ", so that the forward pass computes in the weights' own type.",
            place=place_of(script, node),
            evidence=Evidence(Level.TEXT, {"context": ast.unparse(made)[:80], "entered": False}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Run the forward pass and the loss under `with {name or ast.unparse(made)[:70]}:`.",
                effort=Effort.LINE,
                accuracy="Products round to 16 bits; the weights keep their type.",
                measure="dynotune profile -- python train.py",
            ),
        )
        return


def _made(node: ast.AST) -> ast.Call | None:
    """The context that a statement makes: either branch of a choice between one and none."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) else None
    while isinstance(value, ast.IfExp):
        value = value.body if _is_context(value.body) else value.orelse
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "partial":
        return None
    return value if isinstance(value, ast.Call) and _is_context(value) else None


def _is_context(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(_MAKES.search(ast.unparse(node.func)))


def _given_to(node: ast.AST) -> str:
    """`amp` of `amp = ...` and `self.amp = ...`; empty for a statement of its own."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _reads(name: str, tree: ast.Module) -> bool:
    """It is read by its name, as an attribute, or by a string that may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            if name == (node.id if isinstance(node, ast.Name) else node.attr):
                return True
        elif (isinstance(node, ast.Constant) and node.value == name) or (
            isinstance(node, ast.ImportFrom) and any(one.name in (name, "*") for one in node.names)
        ):
            return True
    return False


def _enters(script: Script) -> bool:
    """Another context of the kind is entered, used as a decorator, or handed on."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.withitem) and "autocast" in ast.unparse(node.context_expr):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            "autocast" in ast.unparse(one) for one in node.decorator_list
        ):
            return True
        if isinstance(node, ast.Call) and re.search(r"__enter__|enter_context", ast.unparse(node.func)):
            return True
    return False
