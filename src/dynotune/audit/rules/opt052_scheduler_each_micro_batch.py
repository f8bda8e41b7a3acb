"""OPT052: the learning rate falls once a micro-batch where it was meant to fall once a step, or never."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import is_scheduler, loops
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_MADE = re.compile(r"get_(\w+_)?(schedule|scheduler)(_\w+)?|\w+LR|CosineAnnealing\w+|SequentialLR|ReduceLROnPlateau")


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _too_often(script)
    yield from _never(script, project)


def _never(script: Script, project: Project) -> Iterator[Said]:
    """A schedule is made beside a loop, and nothing advances it or takes it over."""
    if not any(loop.optimizer_steps for loop in loops(script)):
        return
    near = [code(one) for one in together(script, project)]
    if any(re.search(r"deepspeed|LightningModule|sched\w*\.step\(|\blr_\w+\.step\(", one) for one in near):
        return
    for call in script.calls:
        name = call.result.rpartition(".")[2]
        theirs = call.name.startswith(("transformers.", "torch.optim.lr_scheduler."))
        if not theirs or not name.isidentifier() or not _MADE.fullmatch(call.name.rpartition(".")[2]):
            continue
        uses = [one for text in near for one in re.findall(rf"[^\n]*\b{name}\b[^\n]*", text)]
        if any(_takes_over(one, name) for one in uses):
            continue
        yield Finding(
            f"`{call.result}` is made and never advanced (`{name}.step()`): the learning rate stays at its first value"
            " for the whole run, which is zero where a warm-up begins.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"scheduler": call.result, "steps": 0}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call `{name}.step()` after each update.",
                accuracy="The schedule that was meant.",
                measure="Print the learning rate of the last step.",
            ),
        )


def _takes_over(line: str, name: str) -> bool:
    """It is advanced there, or given to something else than `prepare`, which only wraps it."""
    if re.search(rf"\b{name}\.step\b", line):
        return True
    bare = re.sub(rf"\b{name}\s*(=(?!=)|,(?=[^()]*=)|\.(state_dict|load_state_dict|get_last_lr|last_epoch))", "", line)
    return bool(re.search(rf"\b{name}\b", re.sub(r"prepare\([^)]*\)|^\s*(print|len)\(.*", "", bare)))


def _too_often(script: Script) -> Iterator[Said]:
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
    summary="The learning rate's schedule advances at every micro-batch of an accumulated step, or never.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A schedule counts calls of its `step()`. With accumulation those must be updates, not micro-batches.",
        why="With 8 micro-batches a step a cosine reaches zero after an eighth of the run, or comes back up.",
        detected="E0: a loop where the optimizer steps under `%` and the scheduler under no condition; or a schedule that is"
        " made, and neither advanced nor given to anybody. Accelerate's"
        " schedulers"
        " take this into account and are not reported.",
        proven="Print `scheduler.get_last_lr()` at the last step.",
        deliberate=("The schedule's total is the number of micro-batches.",),
        sources=("PyTorch's documentation of `torch.optim.lr_scheduler`",),
    ),
    bad=Example({"train.py": f"{_LOOP}    scheduler.step()\n"}, says="every micro-batch"),
    good=Example({"train.py": f"{_LOOP}        scheduler.step()\n"}),
    also_bad=(Example({"train.py": _LOOP}, says="never advanced"),),
)
