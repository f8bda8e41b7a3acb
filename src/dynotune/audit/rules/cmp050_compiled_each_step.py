"""CMP050: `torch.compile` is called at every step."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    for call in script.calls:
        if call.name != "torch.compile" or not call.each_step or call.loop is None:
            continue
        inside = "forward" if text_at(script, call.loop).startswith("def forward") else "the training loop"
        yield Finding(
            f"`torch.compile` is called in {inside}: each call makes a new function, which is traced and guarded"
            f" anew, if the"
            " compiler's cache does not give up before.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"where": inside}),
            stake=Stake(AtStake.TIME, 0.1, 0.9, "compiling takes seconds, a step less than one"),
            remedy=Remedy(
                Risk.SAFE,
                "Compile once, before the loop (or in `__init__`), and call the result.",
                measure="TORCH_LOGS=recompiles python train.py",
            ),
        )


_LOOP = """import torch

%sfor batch in train_loader:
%s    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="CMP050",
    name="compiled-each-step",
    summary="`torch.compile` is called at every step.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`torch.compile` returns a compiled callable; compiling happens when it is first called, and is kept"
        " with it.",
        why="A new one at each step is traced at each step.",
        detected="E0: the call stands in a loop with a backward pass, or in a `forward`, under no condition."
        " Compiling layers in"
        " a loop over the model's layers is not reported.",
        proven="`TORCH_LOGS=recompiles` names each compilation.",
        deliberate=("What is compiled differs from step to step.",),
        sources=("PyTorch's documentation of `torch.compile`",),
    ),
    bad=Example({"train.py": _LOOP % ("", "    model = torch.compile(model)\n")}, says="training loop"),
    good=Example({"train.py": _LOOP % ("model = torch.compile(model)\n", "")}),
)
