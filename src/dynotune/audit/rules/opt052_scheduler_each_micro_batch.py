"""OPT052: the learning rate falls once a micro-batch where it was meant to fall once a step."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import is_scheduler, loops
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    if re.search(r"accelerat|deepspeed|LightningModule", script.source):
        return  # theirs steps with the optimizer, wherever it is called
    for loop in loops(script):
        steps = loop.optimizer_steps
        rates = [call for call in loop.has("step") if is_scheduler(call) and call.each_step]
        conditional = bool(steps) and not any(call.each_step for call in steps)
        if not rates or not conditional or not re.search(r"%", loop.text):
            continue
        yield Finding(
            f"`{rates[0].on}.step()` runs at every micro-batch, `{steps[0].on}.step()` only at some: the learning"
            f" rate is through"
            " its schedule before training is.",
            place=rates[0].place,
            evidence=Evidence(Level.TEXT, {"scheduler": rates[0].on, "optimizer": steps[0].on}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Move `{rates[0].on}.step()` under the optimizer's condition, and give the schedule the number of"
                f" updates.",
                accuracy="The schedule that was meant.",
                measure="Print the learning rate of the last step.",
            ),
            also=(steps[0].place,),
            deliberate="The schedule was made for micro-batches, if its total is their number.",
        )


_LOOP = """import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss / 8
    loss.backward()
    if (step + 1) % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
RULE = Rule(
    code="OPT052",
    name="scheduler-each-micro-batch",
    summary="The learning rate's schedule advances at every micro-batch of an accumulated step.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A schedule counts calls of its `step()`. With accumulation those must be updates, not micro-batches.",
        why="With 8 micro-batches a step a cosine reaches zero after an eighth of the run, or comes back up.",
        detected="E0: a loop where the optimizer steps under `%` and the scheduler under no condition. Accelerate's"
        " schedulers"
        " take this into account and are not reported.",
        proven="Print `scheduler.get_last_lr()` at the last step.",
        deliberate=("The schedule's total is the number of micro-batches.",),
        sources=("PyTorch's documentation of `torch.optim.lr_scheduler`",),
    ),
    bad=Example({"train.py": f"{_LOOP}    scheduler.step()\n"}, says="every micro-batch"),
    good=Example({"train.py": f"{_LOOP}        scheduler.step()\n"}),
)
