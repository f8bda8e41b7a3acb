"""DST055: `nn.DataParallel`, one process that drives all GPUs."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    if not any(True for _ in loops(script)):
        return
    for call in script.calls:
        if call.name != "torch.nn.DataParallel":
            continue
        yield Finding(
            "`nn.DataParallel` copies the weights to every GPU at each step and gathers all outputs on the first, from one"
            " process.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"call": call.name}),
            stake=Stake(AtStake.TIME, 0.05, 0.5, "a copy of all weights a step, against the time of the step"),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Use `DistributedDataParallel` under `torchrun`, one process a GPU.",
                effort=Effort.HOURS,
                breaks="The batch is each process's own then.",
                measure="dynotune profile -- torchrun --nproc_per_node 2 train.py",
            ),
        )
        return


_LOOP = """import torch
from torch.nn.parallel import DistributedDataParallel

model = {}(model.cuda())
for batch in train_loader:
    model(**batch).loss.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="DST055",
    name="one-process-for-many-gpus",
    summary="`nn.DataParallel` drives all GPUs from one process.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`DataParallel` replicates the module at every forward pass, by threads of one process under one lock.",
        why="Two GPUs are often slower than one, and the first runs out of memory before the others.",
        detected="E0: the call, in a file with a training loop.",
        proven="`nvidia-smi` while it runs: the first GPU's memory and load against the others'.",
        deliberate=("A trial on a machine where no launcher can be used.",),
        sources=("PyTorch's documentation of `DataParallel`: use `DistributedDataParallel` instead, even on one node",),
    ),
    bad=Example({"train.py": _LOOP.format("torch.nn.DataParallel")}, says="copies the weights"),
    good=Example({"train.py": _LOOP.format("DistributedDataParallel")}),
)
