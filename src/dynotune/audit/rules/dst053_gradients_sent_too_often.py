"""DST053: gradients go over the network at every micro-batch of an accumulated step."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import accumulation, loops
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_WRAPS = ("DistributedDataParallel", "DDP")
_HOLDS_BACK = (
    "no_sync",
    "require_backward_grad_sync",
    "set_requires_gradient_sync",
    "register_comm_hook",
    "accumulate(",
)


def check(script: Script, project: Project) -> Iterator[Said]:
    wrapped = script.calls_of(*_WRAPS)
    if not wrapped or any(word in script.source for word in _HOLDS_BACK):
        return
    for loop in loops(script):
        every, steps = accumulation(script, loop)
        backward = [call for call in loop.has("backward") if call.each_step]
        if not every or not steps or not backward:
            continue
        yield Finding(
            f"`backward()` averages the gradients over all ranks at each of the `{every}` micro-batches of a"
            f" step, where once"
            " would do: nothing stands under `no_sync()`.",
            place=backward[0].place,
            evidence=Evidence(Level.TEXT, {"every": every}),
            stake=Stake(
                AtStake.TIME, 0.0, 0.3, "what of the all-reduce is not hidden behind the backward pass, less 1/N"
            ),
            remedy=Remedy(
                Risk.SAFE,
                f"Run all but the last of the `{every}` micro-batches under `with model.no_sync():`.",
                effort=Effort.MINUTES,
                measure="dynotune profile -- torchrun --nproc_per_node 2 train.py",
            ),
            also=(wrapped[0].place,),
        )
        return


_LOOP = """import contextlib
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model.cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for step, batch in enumerate(train_loader):
    last = (step + 1) % accumulation_steps == 0
    with {}:
        loss = model(**batch).loss / accumulation_steps
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
"""
RULE = Rule(
    code="DST053",
    name="gradients-sent-at-every-micro-batch",
    summary="DDP averages gradients at every micro-batch of an accumulated step.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="DistributedDataParallel reduces all gradients in each backward pass, unless it runs under `no_sync()`.",
        why="With an accumulation of N the same bytes go over the network N times. Within a host with NVLink it"
        " is small, over"
        " Ethernet it is most of the step.",
        detected="E0: a file wraps its model, takes the optimizer's step under `% accumulation`, and nowhere holds the"
        " reduction back.",
        proven="`dynotune profile` shows the all-reduce's share of a step.",
        deliberate=("Memory: the gradients of `no_sync` stay whole on each rank, as they do anyway under DDP.",),
        sources=("PyTorch's documentation of `DistributedDataParallel.no_sync`",),
    ),
    bad=Example({"train.py": _LOOP.format("contextlib.nullcontext()")}, says="no_sync"),
    good=Example({"train.py": _LOOP.format("contextlib.nullcontext() if last else model.no_sync()")}),
)
