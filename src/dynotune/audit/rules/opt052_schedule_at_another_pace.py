"""OPT052: the learning rate falls at another pace than it was meant to: once a micro-batch, once a process, or never."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import RANKS, last_part, on_several, values_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import is_scheduler, loops, place_of
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.advanced_once_an_epoch_by_lightning import advanced_once_an_epoch_by_lightning
from dynotune.audit.shapes.counted_in_epochs import counted_in_epochs
from dynotune.audit.shapes.counted_in_micro_batches import counted, counted_in_micro_batches
from dynotune.audit.shapes.counted_without_epochs import counted_without_epochs
from dynotune.audit.shapes.shared_out_twice import shared_out_twice
from dynotune.audit.shapes.steps_of_one_process import steps_of_one_process

_MADE = re.compile(r"get_(\w+_)?(schedule|scheduler)(_\w+)?|\w+LR|CosineAnnealing\w+|SequentialLR|ReduceLROnPlateau")


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _too_often(script)
    yield from counted_in_micro_batches(script)
    yield from counted_in_epochs(script)
    yield from counted_without_epochs(script)
    yield from advanced_once_an_epoch_by_lightning(script)
    yield from _never(script, project)
    yield from _for_every_process(script, project)
    yield from shared_out_twice(script, project)
    yield from steps_of_one_process(script, project)


def _never(script: Script, project: Project) -> Iterator[Said]:
    """A schedule is made beside a loop, and nothing advances it or takes it over."""
    if not any(loop.optimizer_steps for loop in loops(script)):
        return
    near = [code(one) for one in together(script, project)]
    if any(re.search(r"deepspeed|LightningModule|sched\w*\.step\(|\blr_\w+\.step\(", one) for one in near):
        return
    for call in script.calls:
        name = call.result.rpartition(".")[2]
        theirs = call.name.startswith(("transformers.", "torch.optim.lr_scheduler."))
        if not theirs or not name.isidentifier() or not _MADE.fullmatch(call.name.rpartition(".")[2]):
            continue
        uses = [one for text in near for one in re.findall(rf"[^\n]*\b{name}\b[^\n]*", text)]
        if any(_takes_over(one, name) for one in uses):
            continue
        yield Finding(
            f"`{call.result}` is made and never advanced (`{name}.step()`): the learning rate stays at its first value"
            " for the whole run, which is zero where a warm-up begins.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"scheduler": call.result, "steps": 0}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call `{name}.step()` after each update.",
                accuracy="The schedule that was meant.",
                measure="Print the learning rate of the last step.",
            ),
        )


def _takes_over(line: str, name: str) -> bool:
    """It is advanced there, or given to something else than `prepare`, which only wraps it."""
    if re.search(rf"\b{name}\.step\b", line):
        return True
    bare = re.sub(rf"\b{name}\s*(=(?!=)|,(?=[^()]*=)|\.(state_dict|load_state_dict|get_last_lr|last_epoch))", "", line)
    return bool(re.search(rf"\b{name}\b", re.sub(r"prepare\([^)]*\)|^\s*(print|len)\(.*", "", bare)))


def _too_often(script: Script) -> Iterator[Said]:
    if re.search(r"accelerat|deepspeed|LightningModule", code(script)):
        return  # theirs steps with the optimizer, wherever it is called
    for loop in loops(script):
        steps = loop.optimizer_steps
        rates = [call for call in loop.has("step") if is_scheduler(call) and call.each_step]
        conditional = bool(steps) and not any(call.each_step for call in steps)
        if not rates or not conditional or not re.search(r"%", loop.text):
            continue
        if counted(rates[0].on.rpartition(".")[2], values_of(script))[0] is not None:
            continue  # it is made for as many
        yield Finding(
            f"`{rates[0].on}.step()` runs at every micro-batch, `{steps[0].on}.step()` only at some: the learning"
            f" rate is through"
            " its schedule before training is.",
            place=rates[0].place,
            evidence=Evidence(Level.TEXT, {"scheduler": rates[0].on, "optimizer": steps[0].on}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Move `{rates[0].on}.step()` under the optimizer's condition, and give the schedule the number of"
                f" updates.",
                accuracy="The schedule that was meant.",
                measure="Print the learning rate of the last step.",
            ),
            also=(steps[0].place,),
            deliberate="The schedule was made for micro-batches, if its total is their number.",
        )


_LOOP = """import torch

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss / 8
    loss.backward()
    if (step + 1) % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def _for_every_process(script: Script, project: Project) -> Iterator[Said]:
    """Accelerate advances a prepared schedule once for each; it was counted over one process's share of the steps."""
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
        made = _wrapped(node.value)
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


def _wrapped(value: ast.expr) -> ast.expr:
    """The schedule in `prepare(get_scheduler(...))`."""
    alone = isinstance(value, ast.Call) and len(value.args) == 1 and ast.unparse(value.func).endswith(".prepare")
    return value.args[0] if alone and isinstance(value, ast.Call) else value


def _followed(text: str, assigned: list[ast.Assign], before: int) -> str:
    """With what its plain names were given, some steps back."""
    for _ in range(4):
        names = set(re.findall(r"\b[a-z_]\w*\b", text))
        text += " " + " ".join(
            ast.unparse(one.value)
            for one in assigned
            if one.lineno < before and last_part(one.targets[0]) in names and not isinstance(one.value, ast.Tuple)
            if not re.search(r"\.prepare\(|\bAccelerator\(", ast.unparse(one.value))
        )
        text = text[:4000]
    return text


_ACCELERATED = """from accelerate import Accelerator
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
    code="OPT052",
    name="schedule-at-another-pace",
    summary="A schedule advances at every micro-batch of an accumulated step, for every process, or never.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A schedule counts calls of its `step()`. With accumulation those must be updates, not micro-batches."
        " One that"
        " Accelerate has prepared takes as many at each update as there are processes, since it is meant to be counted"
        " before the loader was split among them.",
        why="With 8 micro-batches a step, or 8 processes, a cosine reaches zero after an eighth of the run, or rises.",
        detected="E0: a loop where the optimizer steps under `%` and the scheduler under no condition; or the other way"
        " round, where its number of steps is `len` of a loader with nothing that divides it, also under"
        " Accelerate's `accumulate`; or a number of epochs that is advanced at every batch, and the other way round, also"
        " by Lightning's default interval; or the batches of one epoch in a run of several, or rows instead of"
        " batches; or a"
        " schedule that is made,"
        " and neither advanced nor given to anybody; or a prepared one whose number of steps comes from `len` of a"
        " loader that `prepare` has returned, without the number of processes; or a number of steps that divides"
        " the length"
        " of a loader which a sampler or `prepare` has shared out by the number of processes again; or one that"
        " divides the"
        " rows of the data by the batch of one process alone, in a run of several or with accumulation, also as"
        " `max_steps`"
        " and `warmup_steps` of a trainer.",
        proven="Print `scheduler.get_last_lr()` at the last step.",
        deliberate=("The schedule's total is the number of micro-batches.", "The schedule is constant."),
        sources=("PyTorch's documentation of `torch.optim.lr_scheduler`", "accelerate's `AcceleratedScheduler.step`"),
    ),
    bad=Example({"train.py": f"{_LOOP}    scheduler.step()\n"}, says="every micro-batch"),
    good=Example({"train.py": f"{_LOOP}        scheduler.step()\n"}),
    also_bad=(
        Example({"train.py": _LOOP}, says="never advanced"),
        Example({"train.py": _ACCELERATED.format(""), "run.sh": _RUN}, says="one process's share"),
    ),
    formerly=("OPT055",),
    former_names=(
        "schedule-of-accelerate",
        "scheduler-each-micro-batch",
    ),
)
