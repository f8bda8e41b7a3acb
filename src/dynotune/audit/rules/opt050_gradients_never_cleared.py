"""OPT050: gradients of all steps add up, since nothing clears them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_CLEARS = re.compile(
    r"zero_grad|\.grad\s*=\s*None|set_to_none|deepspeed|autograd\.grad|\.grad\.zero_|LightningModule|functional_call"
)


def check(script: Script, project: Project) -> Iterator[Said]:
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
    summary="A training loop never clears its gradients.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`backward()` adds to `.grad`. Only `zero_grad()` (or setting `.grad = None`) starts a step afresh.",
        why="Every update follows the sum of all gradients so far: it trains, and to another end.",
        detected="E0: a loop with a backward pass and an optimizer's step, in a file that clears no gradient anywhere.",
        proven="The gradient's norm grows from step to step.",
        deliberate=("The gradients are cleared in a file that the loop calls.",),
        sources=("PyTorch's documentation of `Optimizer.zero_grad`",),
    ),
    bad=Example({"train.py": _LOOP}, says="nothing clears"),
    good=Example({"train.py": f"{_LOOP}    optimizer.zero_grad(set_to_none=True)\n"}),
)
