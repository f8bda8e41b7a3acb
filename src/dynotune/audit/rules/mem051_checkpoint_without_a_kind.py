"""MEM051: activations are recomputed in a way that nobody chose."""

from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    for call in script.calls:
        if call.name not in ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"):
            continue
        if {"use_reentrant", "**"} & set(call.arguments):
            continue
        yield Finding(
            "`checkpoint(...)` without `use_reentrant` takes the reentrant way: with frozen weights before it no"
            " gradient passes,"
            " and a coming release of PyTorch refuses the call.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"use_reentrant": None}),
            stake=Stake(AtStake.RESULT) if "peft" in script.source else Stake(AtStake.CLARITY),
            remedy=Remedy(
                Risk.SAFE,
                "Give `use_reentrant=False`.",
                (Change(Edit.SET, call.place, "use_reentrant", False),),
                breaks="A function that draws other shapes when it is recomputed is then an error.",
                measure="Compare the gradient's norm of one step.",
            ),
        )


_BLOCK = """import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x):
        return checkpoint(self.inner, x%s)
"""
RULE = Rule(
    code="MEM051",
    name="checkpoint-without-a-kind",
    summary="`torch.utils.checkpoint` is called without `use_reentrant`.",
    group=Group.MEMORY,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Checkpointing has two implementations. The reentrant one, still the default, needs an input that"
        " requires a"
        " gradient, and knows neither keyword arguments nor `torch.autograd.grad`.",
        why="Under adapters the inputs of the first layer require none: the block's own weights then learn nothing,"
        " with a warning.",
        detected="E0: a call of `checkpoint` or `checkpoint_sequential` without `use_reentrant`.",
        proven="The gradients of the block's weights are not None.",
        deliberate=("A release of PyTorch before 1.11, which knows no other way.",),
        sources=("PyTorch's documentation of `torch.utils.checkpoint`",),
    ),
    bad=Example({"model.py": _BLOCK % ""}, says="use_reentrant"),
    good=Example({"model.py": _BLOCK % ", use_reentrant=False"}),
)
