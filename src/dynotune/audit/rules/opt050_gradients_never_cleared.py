"""OPT050: gradients of all steps add up, since nothing clears them; or they are cleared before they are used."""

import ast
import bisect
import itertools
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import Loop, loops, place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_CLEARS = re.compile(
    r"zero_grad|\.grad\s*=\s*None|set_to_none|deepspeed|autograd\.grad|\.grad\.zero_|LightningModule|functional_call"
)


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _never(script)
    yield from _too_early(script)


def _too_early(script: Script) -> Iterator[Said]:
    """Cleared right before the update, behind the backward pass."""
    bodies: list[list[ast.stmt]] | None = None
    for loop in loops(script):
        if not loop.optimizer_steps or not loop.has("zero_grad"):
            continue
        bodies = _bodies(script) if bodies is None else bodies
        steps = {(call.place.line, call.place.column): call for call in loop.optimizer_steps}
        cleared = {(call.place.line, call.place.column) for call in loop.has("zero_grad")}
        behind = [call.place for call in loop.has("backward")]
        for body in _within(bodies, loop):
            calls = [_called(statement) for statement in body]
            for first, second in itertools.pairwise(range(len(calls))):
                at, then = calls[first], steps.get(calls[second] or (0, 0))
                if at not in cleared or then is None or not any(place.line < body[first].lineno for place in behind):
                    continue
                yield Finding(
                    f"`zero_grad()` runs between the backward pass and `{then.on}.step()`: the update sees no gradient, and"
                    " only weight decay moves the weights.",
                    place=place_of(script, body[first]),
                    evidence=Evidence(Level.TEXT, {"cleared": "before the update"}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Clear after the update.",
                        accuracy="The model learns.",
                        measure="Watch the loss.",
                    ),
                    also=(then.place,),
                )


def _bodies(script: Script) -> list[list[ast.stmt]]:
    """Runs of statements of a script, in the order of their first lines."""
    found = []
    for node in ast.walk(script.tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                found.append(body)
    return sorted(found, key=_first_line)


def _within(bodies: list[list[ast.stmt]], loop: Loop) -> Iterator[list[ast.stmt]]:
    """Those of the loop."""
    begin = bisect.bisect_right(bodies, loop.place.line, key=_first_line)
    for body in itertools.islice(bodies, begin, None):
        if _first_line(body) > loop.place.end_line:
            return
        if (body[-1].end_lineno or 0) <= loop.place.end_line:
            yield body


def _first_line(body: list[ast.stmt]) -> int:
    return body[0].lineno


def _called(statement: ast.stmt) -> tuple[int, int] | None:
    """Where the call of a statement that is nothing else begins."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return (statement.lineno, statement.col_offset + 1) if is_call else None


def _never(script: Script) -> Iterator[Said]:
    if _CLEARS.search(script.source):
        return
    for loop in loops(script):
        steps = loop.optimizer_steps
        if not steps or not any(call.name.startswith("torch.optim") or "optim" in call.on for call in steps):
            continue
        if any(call.name.rpartition(".")[2].startswith(("train", "step_", "update")) for call in loop.calls):
            continue  # whoever takes the step may clear them as well
        yield Finding(
            f"`{steps[0].on}.step()` runs in a loop whose gradients nothing clears: each step adds those of all"
            f" steps before.",
            place=steps[0].place,
            evidence=Evidence(Level.TEXT, {"cleared": False}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call `{steps[0].on}.zero_grad(set_to_none=True)` after the step.",
                accuracy="The updates that were meant.",
                measure="Compare the gradient's norm over the first steps.",
            ),
        )


_LOOP = """import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in train_loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""
RULE = Rule(
    code="OPT050",
    name="gradients-never-cleared",
    summary="A training loop never clears its gradients, or clears them before the update.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`backward()` adds to `.grad`. Only `zero_grad()` (or setting `.grad = None`) starts a step afresh.",
        why="Every update follows the sum of all gradients so far: it trains, and to another end.",
        detected="E0: a loop with a backward pass and an optimizer's step, in a file that clears no gradient anywhere; or"
        " `zero_grad()` right before the step, behind the backward pass.",
        proven="The gradient's norm grows from step to step.",
        deliberate=("The gradients are cleared in a file that the loop calls.",),
        sources=("PyTorch's documentation of `Optimizer.zero_grad`",),
    ),
    bad=Example({"train.py": _LOOP}, says="nothing clears"),
    good=Example({"train.py": f"{_LOOP}    optimizer.zero_grad(set_to_none=True)\n"}),
    also_bad=(
        Example(
            {"train.py": _LOOP.replace("    optimizer.step", "    optimizer.zero_grad()\n    optimizer.step")},
            says="between the backward pass",
        ),
    ),
)
