"""OPT051: gradients of several micro-batches are added where their mean was meant."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_EVERY = re.compile(r"%\s*\(?\s*([\w.]*(accum|grad_acc|gas\b)[\w.]*)", re.IGNORECASE)
_SCALED = re.compile(
    r"loss\w*\s*/|/=|\*\s*\(?1(\.0)?\s*/|reduction\s*=\s*[\"']sum|num_items|\.backward\(.*/|loss\w*\s*\*|\*=|\.div\(|\.mul\(|\.div_\("
)


def check(script: Script, project: Project) -> Iterator[Said]:
    clipped = "clip_grad" in script.source
    if not clipped and not re.search(r"optim\.SGD\(", script.source):
        return  # Adam's update does not depend on the gradient's scale
    if re.search(r"accelerat|deepspeed|LightningModule|reduction\s*=\s*[\"']sum", script.source):
        return
    for loop in loops(script):
        every = _EVERY.search(loop.text)
        steps = [call for call in loop.optimizer_steps if not call.each_step]
        backward = [call for call in loop.has("backward") if call.each_step]
        if every is None or not steps or not backward or _SCALED.search(loop.text):
            continue
        if "loss" not in backward[0].on:
            continue
        helpers = [call for call in loop.calls if call.name in ("compute_loss", "loss_fn", "train_step", "get_loss")]
        if helpers:
            continue
        then = "is cut by the clipping that follows" if clipped else "makes the step as much longer"
        yield Finding(
            f"`{text_at(script, backward[0].place)}` adds the gradients of `{every[1]}` micro-batches without"
            f" dividing: their sum"
            f" {then}.",
            place=backward[0].place,
            evidence=Evidence(Level.TEXT, {"every": every[1], "clipped": clipped}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Divide by what a step holds: `(loss / {every[1]}).backward()`; with rows of different lengths,"
                f" add up losses"
                " (`reduction='sum'`) and divide by the step's label tokens.",
                accuracy="The updates that were meant; the learning rate may have been tuned to the wrong ones.",
                measure="Compare the gradient's norm with one large batch.",
            ),
            also=(steps[0].place,),
        )


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
    summary="Gradient accumulation adds the micro-batches' gradients instead of averaging them.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The loss of a model is a mean over its micro-batch. Over N of them, gradients add up to N times the"
        " mean.",
        why="Clipping at a norm of 1 then cuts nearly every step, and with SGD the learning rate is N times what"
        " was set."
        " AdamW without clipping does not mind, and is not reported.",
        detected="E0: an optimizer's step under `% accumulation`, a backward pass at every micro-batch, a clipped"
        " gradient or"
        " SGD, and no division in the loop.",
        proven="Train one step with N micro-batches and one with a batch of all rows: the norms must agree.",
        deliberate=("The loss is a sum already, divided elsewhere.", "The learning rate was tuned this way."),
        sources=("Dynotune's parity experiment: a mean of micro-batches' means is off by 5.5 % in the gradient",),
    ),
    bad=Example({"train.py": _LOOP % "loss"}, says="without dividing"),
    good=Example({"train.py": _LOOP % "(loss / accumulation_steps)"}),
)
