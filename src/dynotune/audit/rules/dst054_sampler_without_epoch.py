"""DST054: a distributed sampler that gives the same order in every epoch."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Around, Script
from dynotune.audit.facts.steps import Loop, loops, text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_NOT_TRAINING = re.compile(r"(?<![a-z])(val|valid|validation|eval|evaluation|test|dev)(?![a-z])", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    near = together(script, project)
    if any("set_epoch" in one.source for one in near):
        return
    samplers = [
        call
        for one in near
        for call in one.calls_of("DistributedSampler")
        if (shuffled := call.arguments.get("shuffle")) is None or shuffled.value is True
        if not any(word in call.result.lower() for word in ("val", "eval", "test"))
        if not _NOT_TRAINING.search(_first(text_at(one, call.place)))
    ]
    if not samplers:
        return
    for loop in loops(script):
        epochs = next(
            (one for call in loop.calls for one in call.around if one.kind == "for" and "epoch" in one.name), None
        ) or _turns(loop)
        if epochs is None or "epoch" in loop.text.partition("\n")[0]:
            continue
        if _reads_without_sampler(loop, near):
            continue
        yield Finding(
            f"Nothing calls `set_epoch`: the sampler shuffles by its seed and epoch 0, so each epoch of `for"
            f" {epochs.name}` has"
            " the same order and the same batches.",
            place=samplers[0].place,
            evidence=Evidence(Level.TEXT, {"epochs": epochs.name}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Call `sampler.set_epoch(epoch)` before each epoch.",
                accuracy="Epochs are shuffled anew.",
            ),
            also=(loop.place,),
        )
        return


def _turns(loop: Loop) -> Around | None:
    """A loop over numbers around the one over the rows, whatever its variable is called."""
    for call in loop.calls:
        around = [one for one in call.around if one.kind == "for"]
        if len(around) == 2 and " in range(" in around[0].name and " in range(" not in around[1].name:
            return around[0] if "range(1)" not in around[0].name else None
    return None


def _first(call: str) -> str:
    """The first argument of a call, as far as its comma."""
    return re.split(r"[,)]", call.partition("(")[2], maxsplit=1)[0]


def _reads_without_sampler(loop: Loop, near: Sequence[Script]) -> bool:
    """The loop goes over loaders that are made in these files, and none of them takes a sampler."""
    names = set(re.findall(r"\w+", loop.text.partition("\n")[0].partition(" in ")[2]))
    made = [call for one in near for call in one.calls_of("DataLoader") if call.result in names]
    takes = ("sampler", "batch_sampler", "3", "4", "**", "*")
    return bool(made) and not any(name in call.arguments for call in made for name in takes)


_LOOP = """import torch
from torch.utils.data import DataLoader, DistributedSampler

sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=4, sampler=sampler)
model.cuda()
for epoch in range(3):
    %s
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
RULE = Rule(
    code="DST054",
    name="sampler-without-epoch",
    summary="A distributed sampler is never told the epoch.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`DistributedSampler` shuffles by seed + epoch, and knows the epoch only from `set_epoch`.",
        why="Every epoch repeats the order of the first, in one process as in many: the batches never mix.",
        detected="E0: a shuffling sampler, a loop over epochs around the training loop, and no `set_epoch` in the files that"
        " work together.",
        proven="Print the first rows of two epochs.",
        deliberate=("The same order is wanted, to compare epochs.",),
        sources=("PyTorch's documentation of `DistributedSampler`, its warning",),
    ),
    bad=Example({"train.py": _LOOP % "model.train()"}, says="set_epoch"),
    good=Example({"train.py": _LOOP % "sampler.set_epoch(epoch)"}),
)
