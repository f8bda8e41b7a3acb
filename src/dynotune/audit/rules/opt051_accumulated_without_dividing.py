"""OPT051: gradients of several micro-batches are added where their mean was meant, or their mean is divided once more."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import Loop, accumulation, loops, place_of, text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.divided_twice import divided_twice
from dynotune.audit.shapes.mean_that_nobody_divides import mean_that_nobody_divides

_ELSEWHERE = re.compile(r"accelerat|deepspeed|LightningModule|reduction\s*=\s*[\"']sum|num_items")
_GRADIENTS = re.compile(r"\.grad(\.data)?\s*(/=|\*=|\.div_\(|\.mul_\()|foreach_(div|mul)_?\(")
_NAMED = frozenset({"compute_loss", "loss_fn", "train_step", "get_loss"})


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from divided_twice(script, project)
    yield from mean_that_nobody_divides(script, project)
    yield from _never(script)


def _never(script: Script) -> Iterator[Said]:
    """Neither the loss nor the gradients are divided."""
    clipped = "clip_grad" in script.source
    if not clipped and not re.search(r"optim\.SGD\(", script.source):
        return  # Adam's update does not depend on the gradient's scale
    if _ELSEWHERE.search(script.source) or _GRADIENTS.search(script.source):
        return
    for loop in loops(script):
        every, steps = accumulation(script, loop)
        backward = [call for call in loop.has("backward") if call.each_step]
        if not every or not steps or not backward or "loss" not in backward[0].on:
            continue
        if any(call.name in _NAMED for call in loop.calls) or _scaled(script, loop, backward[0]):
            continue
        then = "is cut by the clipping that follows" if clipped else "makes the step as much longer"
        yield Finding(
            f"`{text_at(script, backward[0].place)}` adds the gradients of `{every}` micro-batches without"
            f" dividing: their sum"
            f" {then}.",
            place=backward[0].place,
            evidence=Evidence(Level.TEXT, {"every": every, "clipped": clipped}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Divide by what a step holds: `(loss / {every}).backward()`; with rows of different lengths,"
                f" add up losses"
                " (`reduction='sum'`) and divide by the step's label tokens.",
                accuracy="The updates that were meant; the learning rate may have been tuned to the wrong ones.",
                measure="Compare the gradient's norm with one large batch.",
            ),
            also=(steps[0].place,),
        )


def _scaled(script: Script, loop: Loop, backward: Call) -> bool:
    """What the backward pass starts from is divided or multiplied on its way, or comes from code that may do so."""
    bodies = {
        node.name: node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    whole = next((node for node in ast.walk(script.tree) if _is_at(script, node, loop.place)), None)
    start = next((node for node in ast.walk(script.tree) if _is_at(script, node, backward.place)), None)
    if not isinstance(whole, ast.For | ast.While | ast.AsyncFor) or start is None:
        return True
    helpers = [one for one in bodies.values() if start in ast.walk(one) and one not in ast.walk(whole)]
    within: ast.AST = helpers[-1] if helpers and start not in ast.walk(whole) else whole
    waiting: list[ast.AST] = [start]
    names: set[str] = set()
    while waiting:
        node = waiting.pop()
        if _scales(node) or any(
            _may_scale(call, script, bodies) for call in ast.walk(node) if isinstance(call, ast.Call)
        ):
            return True
        new = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - names
        names |= new
        for statement in ast.walk(within):
            if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                held = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
                if held & new:
                    waiting.append(statement if isinstance(statement, ast.AugAssign) else statement.value)
            elif (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Call)
                and statement.value is not start
            ):
                func = statement.value.func
                if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in new:
                    waiting.append(statement.value)
    return False


def _scales(node: ast.AST) -> bool:
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp | ast.AugAssign) and isinstance(one.op, ast.Div | ast.Mult):
            return True
        if isinstance(one, ast.Attribute) and one.attr.rstrip("_") in ("div", "mul", "true_divide", "multiply"):
            return True
    return False


def _may_scale(call: ast.Call, script: Script, bodies: Mapping[str, ast.AST]) -> bool:
    """A function of the file that divides or multiplies, or one of the project that is not read here."""
    func = call.func
    name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
    if name in bodies:
        return _scales(bodies[name])
    return isinstance(func, ast.Name) and name in script.imports and not script.imports[name].startswith("torch")


def _is_at(script: Script, node: ast.AST, place: Place) -> bool:
    if not isinstance(node, ast.stmt | ast.Call) or getattr(node, "lineno", 0) != place.line:
        return False
    return place_of(script, node) == place


_LOOP = """import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss
    %s.backward()
    if (step + 1) %% accumulation_steps == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
"""
RULE = Rule(
    code="OPT051",
    name="accumulated-without-dividing",
    summary="Gradient accumulation adds the micro-batches' gradients instead of averaging them, or divides them twice.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The loss of a model is a mean over its micro-batch. Over N of them, gradients add up to N times the"
        " mean.",
        why="Clipping at a norm of 1 then cuts nearly every step, and with SGD the learning rate is N times what"
        " was set."
        " AdamW without clipping does not mind, and is not reported.",
        detected="E0: an optimizer's step under `% accumulation` or after a loop over `range(accumulation)`, a"
        " backward pass"
        " at every micro-batch, a clipped gradient or SGD, and no division or factor on the way of the loss; or two"
        " divisions on it, also in"
        " helpers of other files, or one in the `training_step` of Lightning or the `compute_loss` of a `Trainer`"
        " that divides as well. E1: a `compute_loss` that"
        " returns a mean and does not look at `num_items_in_batch`, for a model that `Trainer` trusts to do so.",
        proven="Train one step with N micro-batches and one with a batch of all rows: the norms must agree.",
        deliberate=("The loss is a sum already, divided elsewhere.", "The learning rate was tuned this way."),
        sources=("Dynotune's parity experiment: a mean of micro-batches' means is off by 5.5 % in the gradient",),
    ),
    bad=Example({"train.py": _LOOP % "loss"}, says="without dividing"),
    good=Example({"train.py": _LOOP % "(loss / accumulation_steps)"}),
)
