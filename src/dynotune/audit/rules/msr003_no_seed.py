"""MSR003: a loop of one's own that draws numbers from no seed."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SEEDED = re.compile(r"seed|Generator\(", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    if _SEEDED.search(script.source) or not any(loops(script)):
        return
    if any(name.startswith(".") for name in script.imports.values()):
        return  # the project's own start-up may set it
    shuffled = [
        call
        for call in script.calls
        if call.name == "torch.utils.data.DataLoader"
        and (given := call.arguments.get("shuffle")) is not None
        and given.value is True
    ]
    adapters = [call for call in script.calls if call.name == "peft.get_peft_model"]
    drawn = [*shuffled, *adapters]
    if not drawn:
        return
    what = " and ".join(
        [*(["the order of rows"] if shuffled else []), *(["the adapters' first weights"] if adapters else [])]
    )
    differ = "differ" if adapters else "differs"
    yield Finding(
        f"No seed is set: {what} {differ} from run to run, so that two runs cannot be compared.",
        place=drawn[0].place,
        evidence=Evidence(Level.TEXT, {"drawn": what, "seed": None}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Call `transformers.set_seed(42)` (or `torch.manual_seed`) before the model and the loader are made.",
            accuracy="Another draw, which can be drawn again.",
        ),
        also=tuple(call.place for call in drawn[1:]),
    )


_LOOP = """import torch
from torch.utils.data import DataLoader

%sloader = DataLoader(rows, batch_size=8, shuffle=True)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="MSR003",
    name="no-seed",
    summary="A training loop sets no seed.",
    group=Group.MEASURE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Shuffling, dropout and new weights come from random numbers. Trainers set a seed (42); a loop must do"
        " so itself.",
        why="The difference between two runs is then that of a setting and of luck, and nobody can tell how much of"
        " which.",
        detected="E0: a loop with a backward pass, rows that are shuffled or adapters that are made, and no word of"
        " a seed or"
        " a generator in the file.",
        proven="Run twice and compare the first losses.",
        deliberate=("Runs are repeated often enough to average over.",),
        sources=("PyTorch's notes on reproducibility",),
    ),
    bad=Example({"train.py": _LOOP % ""}, says="No seed"),
    good=Example({"train.py": _LOOP % "torch.manual_seed(0)\n"}),
)
