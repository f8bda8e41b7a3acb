"""MEM053: a loop keeps the losses of its steps with all that they were made from."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import Loop, loops, place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_RETAINED = re.compile(r"retain_graph\s*=\s*True")


def check(script: Script, project: Project) -> Iterator[Said]:
    nodes = {
        node.lineno: node for node in ast.walk(script.tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor)
    }
    for loop in loops(script):
        node = nodes.get(loop.place.line)
        if node is not None:
            yield from _in_loop(script, loop, node)


def _in_loop(script: Script, loop: Loop, node: ast.For | ast.While | ast.AsyncFor) -> Iterator[Said]:
    backward = {call.on for call in loop.has("backward") if call.on}
    held = {one for one in backward if not _let_go(one, loop.text)}
    inside = list(ast.walk(node))
    begun = {
        ast.unparse(target)
        for one in inside
        if isinstance(one, ast.Assign | ast.AnnAssign)
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
    }
    for one in inside:
        if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add):
            into, what = ast.unparse(one.target), one.value
        elif (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Attribute)
            and one.func.attr == "append"
            and len(one.args) == 1
        ):
            into, what = ast.unparse(one.func.value), one.args[0]
        elif isinstance(one, ast.Assign) and _adds_to_itself(one):
            into, what = ast.unparse(one.targets[0]), one.value
            if into not in backward and _is_kept(what, held):
                yield _finding(script, one, into, next(name for name in sorted(held) if name in ast.unparse(what)))
            continue
        else:
            continue
        # What is begun anew in each round, or is itself what `backward` is called on, is let go of in time.
        if into in begun | backward or not _is_kept(what, held):
            continue
        yield _finding(script, one, into, ast.unparse(what))


def _finding(script: Script, node: ast.AST, into: str, kept: str) -> Finding:
    return Finding(
        f"`{into}` keeps `{kept}` of every step with the graph that made it: memory grows from step to step.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"kept": kept, "in": into}),
        stake=Stake(AtStake.MEMORY),
        remedy=Remedy(
            Risk.SAFE,
            f"Keep `{kept}.detach()`, and read the sum when it is logged.",
            measure="Print `torch.cuda.memory_allocated()` every hundred steps.",
        ),
    )


def _adds_to_itself(node: ast.Assign) -> bool:
    """`mean = 0.9 * mean + 0.1 * loss`: what it held before is part of what it holds."""
    target = node.targets[0]
    if len(node.targets) != 1 or not isinstance(target, ast.Name | ast.Attribute | ast.Subscript):
        return False
    name = ast.unparse(target)
    return any(ast.unparse(one) == name for one in ast.walk(node.value) if isinstance(one, type(target)))


def _let_go(name: str, text: str) -> bool:
    """It is replaced by a number or a copy without its graph before it may be kept."""
    return bool(re.search(rf"\b{re.escape(name)}\s*=[^=\n]*\b{re.escape(name)}\b[^=\n]*\.(item|detach)\(", text)) and (
        not _RETAINED.search(text)
    )


def _is_kept(what: ast.expr, held: set[str]) -> bool:
    """The loss itself, or its multiple."""
    if isinstance(what, ast.IfExp):
        return _is_kept(what.orelse, held)
    if isinstance(what, ast.BinOp):
        return any(_is_kept(side, held) for side in (what.left, what.right))
    if isinstance(what, ast.Dict | ast.Tuple | ast.List):
        return any(_is_kept(one, held) for one in (what.values if isinstance(what, ast.Dict) else what.elts))
    return isinstance(what, ast.Name | ast.Attribute) and ast.unparse(what) in held


_LOOP = """import torch

total = 0.0
for batch in train_loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss%s
"""
RULE = Rule(
    code="MEM053",
    name="graphs-kept",
    summary="A training loop keeps every step's loss with its graph.",
    group=Group.MEMORY,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A loss knows what it was made from. A sum or a list of losses keeps that of all steps.",
        why="`backward()` frees the saved activations, not the graph's nodes, nor what operations of one's own"
        " keep: memory"
        " grows slowly, and the run ends hours later.",
        detected="E0: within a training loop the tensor that `backward` is called on is added to, or appended to, what"
        " outlives the round, without `detach()`, `item()` or `float()`.",
        proven="`torch.cuda.memory_allocated()` every hundred steps.",
        deliberate=("The sum is what a later backward pass goes through.",),
        sources=("PyTorch's FAQ: `My model reports CUDA out of memory`",),
    ),
    bad=Example({"train.py": _LOOP % ""}, says="grows from step to step"),
    good=Example({"train.py": _LOOP % ".detach()"}),
    also_bad=(
        Example(
            {
                "train.py": (_LOOP % "")
                .replace("total = 0.0", "seen = []")
                .replace("total += loss", "seen.append(loss)")
            },
            says="`seen` keeps `loss`",
        ),
    ),
)
