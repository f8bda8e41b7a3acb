"""OPT054: Accelerate is told how much to accumulate, and the loop goes past it."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.divided import divided
from dynotune.audit.facts.loaded_data import argument
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import on_several
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import Loop, accumulation, loops
from dynotune.audit.facts.together import imported, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.accumulation_not_told import accumulation_not_told
from dynotune.audit.shapes.divided_before_deepspeed import divided_before_deepspeed

_ENTERS = re.compile(
    r"\.accumulate\(|no_sync\(|sync_gradients\s*=(?!=)|_set_sync_gradients|_do_sync\b|trigger_sync_in_backward"
)


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from divided_before_deepspeed(script, project)
    made = next((call for call in script.calls_of("Accelerator") if _accumulates(call)), None)
    if made is None:
        yield from accumulation_not_told(script, project)
        return
    every = made.arguments["gradient_accumulation_steps"]
    told = isinstance(every.value, int) and every.value != 1
    shown = str(every.value) if told else "gradient_accumulation_steps"
    yield from _not_prepared(script, made, shown)
    given = argument(script, made, "gradient_accumulation_steps")
    said = ast.unparse(given) if isinstance(given, ast.Name | ast.Attribute | ast.Subscript) else ""
    enters = any(_ENTERS.search(one.source) for one in together(script, project))
    for loop in loops(script):
        backward = [call for call in loop.has("backward") if "accelerat" in call.on.lower() or call.on == made.result]
        if not backward:
            yield from _past_it(loop, made, shown)
            continue
        place = divided(script, loop, imported(script, project), every.value if told else None, {said})
        if place is not None:
            yield _finding(
                script,
                place,
                f"The loss is divided by the accumulation here, and once more by `accelerator.backward`, which was told"
                f" `gradient_accumulation_steps={shown}`: gradients are {shown} times too small.",
                "Take the division out.",
                (made.place,),
            )
        elif not enters and accumulation(script, loop)[1]:
            if on_several(script, project):
                yield _sent_each_time(backward[0].place, made, shown)
        elif not enters:
            yield _finding(
                script,
                backward[0].place,
                f"`Accelerator(gradient_accumulation_steps={shown})` is made, and no `with"
                f" accelerator.accumulate(model):` is"
                " entered: `backward` divides each loss by that number, and gradients are exchanged at every"
                " micro-batch.",
                "Run the step under `with accelerator.accumulate(model):` and call `optimizer.step()` at every"
                " micro-batch.",
                (made.place,),
            )
        return


def _not_prepared(script: Script, made: Call, shown: str) -> Iterator[Said]:
    """The optimizer of a loop under `accumulate` was not given to `prepare`: nothing holds its steps back."""
    handed = " ".join(re.findall(r"\.prepare(?:_optimizer)?\(([^)]*)\)", script.source))
    if not handed or "*" in handed or "prepare_optimizer" in script.source:
        return
    made_here = {
        call.result for call in script.calls if re.search(r"^torch\.optim\.\w+$|^bitsandbytes\.optim", call.name)
    }
    for loop in loops(script):
        for step in loop.optimizer_steps:
            under = any(one.kind == "with" and ".accumulate(" in one.name for one in step.around)
            if not under or not step.each_step or step.on not in made_here or re.search(rf"\b{step.on}\b", handed):
                continue
            yield _finding(
                script,
                step.place,
                f"`{step.on}` was not given to `accelerator.prepare`: under `accumulate` nothing holds it back, and it steps"
                f" (and clears the gradients) at each of the {shown} micro-batches.",
                f"Prepare it with the model: `model, {step.on}, ... = accelerator.prepare(model, {step.on}, ...)`.",
                (made.place,),
            )
            return


def _sent_each_time(place: Place, made: Call, shown: str) -> Finding:
    """The loop counts micro-batches by itself, and Accelerate does not know at which of them gradients are needed."""
    return Finding(
        f"The loop counts its micro-batches by itself, and no `with accelerator.accumulate(model):` tells Accelerate"
        f" (`gradient_accumulation_steps={shown}`) which is the last: gradients go over the network at each of them.",
        place=place,
        evidence=Evidence(Level.TEXT),
        stake=Stake(AtStake.TIME, 0.0, 0.3, "what of the all-reduce is not hidden behind the backward pass, less 1/N"),
        remedy=Remedy(
            Risk.SAFE,
            "Run the step under `with accelerator.accumulate(model):` and call `optimizer.step()` at every micro-batch.",
            effort=Effort.MINUTES,
            measure="dynotune profile -- accelerate launch train.py",
        ),
        also=(made.place,),
    )


def _past_it(loop: Loop, made: Call, shown: str) -> Iterator[Said]:
    """`loss.backward()` under `accumulate`: nobody divides the loss."""
    for call in loop.has("backward"):
        under = any(around.kind == "with" and ".accumulate(" in around.name for around in call.around)
        if (
            under
            and "loss" in call.on.lower()
            and not re.search(r"loss\w*\s*(?:/=|=[^=\n]*/)|/\s*[\w.]*accum", loop.text)
        ):
            yield Finding(
                f"`{call.on}.backward()` goes past `accelerator.backward`, which divides the loss by"
                f" `gradient_accumulation_steps={shown}` and scales it in float16: here nothing does, and gradients of"
                f" {shown} micro-batches are added.",
                place=call.place,
                evidence=Evidence(Level.TEXT),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    f"Call `accelerator.backward({call.on})`.",
                    accuracy="Gradients are the mean over the step's micro-batches.",
                    measure="Compare the gradient's norm with one large batch.",
                ),
                also=(made.place,),
            )
            return


def _finding(script: Script, place: Place, message: str, remedy: str, also: tuple[Place, ...]) -> Finding:
    return Finding(
        message,
        place=place,
        evidence=Evidence(Level.TEXT),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            remedy,
            effort=Effort.MINUTES,
            accuracy="Gradients are the mean over the step's micro-batches, as the number says.",
            measure="Compare the gradient's norm with one large batch.",
        ),
        also=also,
    )


def _accumulates(call: Call) -> bool:
    every = call.arguments.get("gradient_accumulation_steps")
    if not call.name.startswith("accelerate") or every is None or every.value is None:
        return False
    return every.value != 1 or any(place.key.startswith("-") for place in every.via)  # a flag, 1 by default


_LOOP = """from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    {}
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
RULE = Rule(
    code="OPT054",
    name="accumulation-of-accelerate",
    summary="A loop goes past the accumulation that Accelerate was told of, or accumulates with one that nobody told.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="With `gradient_accumulation_steps=N`, `accelerator.backward` divides the loss by N, and steps and"
        " exchanges are"
        " held back inside of `accelerator.accumulate(model)` alone.",
        why="Without the context every micro-batch is a step of its own with an N-th of its gradient; with a"
        " division of one's"
        " own gradients are N times too small. AdamW hides both, but for clipping. An `Accelerator()` that is told nothing"
        " accumulates nothing: the context then lets each micro-batch be a step, whatever a flag of the script says.",
        detected="E0: the number in the call, `accelerator.backward` in the loop, and no `accumulate`, `no_sync` or"
        " `sync_gradients` in the files that work together; or a division of the loss by the accumulation before it; or"
        " `loss.backward()` under `accumulate`, undivided; or"
        " `accumulate` in the loop, a"
        " flag or a number of the script for the accumulation that is not 1 in a command or by itself, and neither the call"
        " nor the launcher that tells `Accelerator` of it; or a loss that is divided before the `backward` of"
        " DeepSpeed's engine, whose file has the number.",
        proven="The gradient's norm of one step, against one large batch.",
        deliberate=("A custom wrapper enters the context.",),
        sources=("accelerate's `Accelerator.backward` and its guide on gradient accumulation",),
    ),
    bad=Example({"train.py": _LOOP.format("if True:")}, says="no `with accelerator.accumulate(model):`"),
    good=Example({"train.py": _LOOP.format("with accelerator.accumulate(model):")}),
    also_bad=(
        Example(
            {
                "train.py": "gradient_accumulation_steps = 4\n"
                + _LOOP.format("with accelerator.accumulate(model):").replace("gradient_accumulation_steps=4, ", "")
                + "    total = len(loader) // gradient_accumulation_steps\n"
            },
            says="was not told",
        ),
    ),
)
