"""A loop divides its loss by the accumulation, and DeepSpeed's `backward` does so once more."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.divided import divided
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_KEY = "gradient_accumulation_steps"
_SETS = re.compile(rf"[\"']{_KEY}[\"']\]\s*=(?!=)|[\"']{_KEY}[\"']\s*:\s*1\b|\b{_KEY}\s*=\s*1\b|set_train_batch_size\(")
"""The script gives DeepSpeed another number than its file has."""


def divided_before_deepspeed(script: Script, project: Project) -> Iterator[Said]:
    """`loss = engine(...).loss / 4` before `engine.backward(loss)`, with `"gradient_accumulation_steps": 4` in the file."""
    made = [call for call in script.calls if call.name == "deepspeed.initialize"]
    if not made or "scale_wrt_gas" in script.source or _SETS.search(script.source):
        return
    held = _file(script, project)
    every = held.at(_KEY) if held is not None else None
    if held is None or not isinstance(every, int) or every < 2:
        return
    for loop in loops(script):
        place = divided(script, loop, imported(script, project), every)
        if place is not None:
            yield _finding(place, every, held.places.get(_KEY, Place(held.file)))
            return


def _file(script: Script, project: Project) -> ConfigFile | None:
    """The only DeepSpeed file that commands give the program, or that is there."""
    there = [one for one in project.configs if one.kind == "deepspeed"]
    named = {name for launch in project.launches if launch.script == script.file for name in launch.configs}
    given = [one for one in there if one.file in named] or there
    return given[0] if len(given) == 1 else None


def _finding(place: Place, every: int, told: Place) -> Finding:
    return Finding(
        f"The loss is divided by the accumulation here, and once more by DeepSpeed's `backward`, whose file says"
        f" `{_KEY}: {every}`: gradients are {every} times too small.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {_KEY: every}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the division out.",
            effort=Effort.LINE,
            accuracy="Gradients are the mean over the step's micro-batches, as the number says.",
            measure="Compare the gradient's norm with one large batch.",
        ),
        also=(told,),
    )
