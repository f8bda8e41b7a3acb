"""OPT055: a schedule that Accelerate advances for every process, over one process's share of the steps."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import RANKS, last_part, on_several
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    if not script.calls_of("Accelerator") or "step_scheduler_with_optimizer" in script.source:
        return
    if "split_batches=True" in script.source or not on_several(script, project):
        return
    for room in ast.walk(script.tree):
        if isinstance(room, ast.FunctionDef | ast.Module):
            yield from _in(script, room)


def _in(script: Script, room: ast.FunctionDef | ast.Module) -> Iterator[Said]:
    assigned = [node for node in room.body if isinstance(node, ast.Assign)]
    prepared: dict[str, int] = {}
    for node in assigned:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(".prepare"):
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
            prepared |= {last_part(target): node.lineno for target in targets}
    for node in assigned:
        made = node.value
        name = last_part(node.targets[0])
        if not isinstance(made, ast.Call) or not re.search(
            r"get_\w*sched\w*$|LambdaLR$|OneCycleLR$", ast.unparse(made.func)
        ):
            continue
        if name not in prepared or prepared[name] < node.lineno:
            continue
        text = _followed(ast.unparse(made), assigned, node.lineno)
        share = next(
            (one for one in re.findall(r"len\((\w+)\)", text) if prepared.get(one, node.lineno) < node.lineno), ""
        )
        counted = next((one.lineno for one in assigned if f"len({share})" in ast.unparse(one.value)), node.lineno)
        if not share or counted < prepared[share] or RANKS.search(text):
            continue
        yield Finding(
            f"`{name}` counts `len({share})`, which `prepare` has made one process's share, and is prepared"
            f" itself: Accelerate"
            " advances it once for each process at every step, so with N of them it is through after an N-th of the run.",
            place=place_of(script, node),
            evidence=Evidence(Level.TEXT, {"counted by": share}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Multiply its steps by `accelerator.num_processes`, or leave it out of `prepare`.",
                accuracy="The learning rate falls over the whole run.",
                measure="Print the learning rate of the last step.",
            ),
            also=(Place(script.file, counted), Place(script.file, prepared[name])),
        )
        return


def _followed(text: str, assigned: list[ast.Assign], before: int) -> str:
    """With what its plain names were given, some steps back."""
    for _ in range(4):
        names = set(re.findall(r"\b[a-z_]\w*\b", text))
        text += " " + " ".join(
            ast.unparse(one.value)
            for one in assigned
            if one.lineno < before and last_part(one.targets[0]) in names and not isinstance(one.value, ast.Tuple)
            if ".prepare(" not in ast.unparse(one.value)
        )
        text = text[:4000]
    return text


_LOOP = """from accelerate import Accelerator
from transformers import get_scheduler

accelerator = Accelerator(mixed_precision="bf16")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = len(loader) * 3{}
schedule = get_scheduler("cosine", optimizer, num_warmup_steps=10, num_training_steps=steps)
schedule = accelerator.prepare(schedule)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
"""
_RUN = "accelerate launch --num_processes 4 train.py\n"
RULE = Rule(
    code="OPT055",
    name="schedule-of-accelerate",
    summary="A schedule is counted in one process's steps, and advanced for all.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A schedule that Accelerate has prepared takes as many steps at each update as there are processes, since the"
        " schedule is meant to be counted before the loader was split among them.",
        why="Counted after that, a cosine is at its end after an eighth of a run on eight GPUs, and rises again.",
        detected="E0: the number of steps comes from `len` of a loader that `prepare` has returned, the schedule is prepared"
        " too, and the number of processes is in neither.",
        proven="Print the learning rate of the last step.",
        deliberate=("The schedule is constant.",),
        sources=("accelerate's `AcceleratedScheduler.step`",),
    ),
    bad=Example({"train.py": _LOOP.format(""), "run.sh": _RUN}, says="one process's share"),
    good=Example({"train.py": _LOOP.format(" * accelerator.num_processes"), "run.sh": _RUN}),
)
