"""CKP050: a file that may run any code is loaded."""

from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    for call in script.calls:
        if call.name != "torch.load":
            continue
        only = call.arguments.get("weights_only")
        if only is None or only.value is not False:
            continue
        yield Finding(
            "`torch.load(..., weights_only=False)` runs whatever code the file holds.",
            place=only.place,
            evidence=Evidence(Level.TEXT, {"weights_only": False}),
            stake=Stake(AtStake.LOST, source="whoever can write the file has the rights of who loads it"),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Set `weights_only=True`; what it refuses belongs into `add_safe_globals`. Weights alone belong into"
                " safetensors.",
                (Change(Edit.SET, only.place, "weights_only", True),),
                breaks="Files with objects other than tensors and plain values are refused.",
            ),
        )


_LOAD = """import torch

state = torch.load("checkpoint.pt", map_location="cpu", weights_only=%s)
model.load_state_dict(state)
"""
RULE = Rule(
    code="CKP050",
    name="unpickled-without-a-check",
    summary="A checkpoint is loaded in a way that runs its code.",
    group=Group.OPERATION,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`torch.save` writes pickles, and loading a pickle may call any function. `weights_only=True`, the"
        " default since"
        " PyTorch 2.6, lets only tensors and plain values through.",
        why="A checkpoint from elsewhere is a program from elsewhere.",
        detected="E0: `weights_only=False`, given. What is left to the default is not reported.",
        proven="`torch.load(path, weights_only=True)` loads it, or names what it refuses.",
        deliberate=("The file was written by this project, and nobody else can write there.",),
        sources=("PyTorch's documentation of `torch.load`",),
    ),
    bad=Example({"resume.py": _LOAD % "False"}, says="runs whatever code"),
    good=Example({"resume.py": _LOAD % "True"}),
)
