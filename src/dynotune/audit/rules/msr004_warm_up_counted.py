"""MSR004: a speed whose clock starts before the first step, with compilation and warm-up in it."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynotune.audit.facts import asked
from dynotune.audit.facts.clocks import CLOCK, speed_since, start_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, on_device
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.first_step_in_the_time import first_step_in_the_time
from dynotune.audit.shapes.started_while_timed import (
    of_a_short_compiled_run,
    timed_around_a_process,
    timed_by_a_shell,
)

_WARM = re.compile(
    r"warm_?up_?(steps|iters|batches|done)?\b(?!_ratio)[^=\n]{0,80}[:<>=]|skip_first(?!_batches)|first_step|burn_in",
    re.IGNORECASE,
)


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _of_a_script(script, project)
    for place, start in timed_by_a_shell(project):
        yield _of_all(None, place, start)


def _of_a_script(script: Script, project: Project) -> Iterator[Finding]:
    known = [*_by_a_callback(script, project), *_around_a_trainer(script)]
    known += _before_a_loop(script) if on_device(script) else ()
    yield from known
    whole = next(timed_around_a_process(script), None) or next(of_a_short_compiled_run(script, project), None)
    if whole is not None and not known:
        yield _of_all(script, *whole)
    elif not known:
        for one in first_step_in_the_time(script, project):
            yield replace(
                _finding(script, one.place, one.start.line),
                message=f"{one.how}, with {one.in_it}.",
            )
            return


def _of_all(script: Script | None, place: Place, start: Place) -> Finding:
    inside = "the whole command: imports, loading" if script is None or start.file == script.file else "the whole run"
    return Finding(
        f"The time of this speed is of {inside}, compilation, memory allocation and warm-up are in it.",
        place=place,
        evidence=Evidence(Level.TEXT, {"clock starts at line": start.line}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(Risk.SAFE, _IN_A_CALL, effort=Effort.MINUTES, measure="dynotune profile -- python train.py"),
        also=(start,),
    )


def _before_a_loop(script: Script) -> Iterator[Finding]:
    lines = [line.partition("  #")[0] for line in script.source.split("\n")]
    every = list(loops(script))
    epochs = _of_several_turns(script)
    functions = [node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)]
    for loop in every:
        begin, end = loop.place.line, loop.place.end_line
        for number in range(min(max(begin - 40, 1), _head(functions, begin)), begin):
            start = start_of(lines[number - 1])
            if not start:
                continue
            if any(number - 15 < one.place.end_line < number for one in every):
                continue  # steps that nobody times come first
            name = re.escape(start)
            first, last = _outermost(script, begin, end, number)
            inside = "\n".join(lines[first - 1 : last])
            if re.search(
                rf"(?:^|[:;])[^\S\n]*(?:[\w.]{{1,60}}, ?){{0,6}}{name}\b[^=\n]{{0,120}}=[^=]", inside, re.MULTILINE
            ) or _is_warm(lines[begin - 40 if begin > 40 else 0 : end]):
                continue  # taken anew on the way
            read = speed_since(lines, begin, min(end + 25, len(lines)), name)
            if read > end and any(number in lines_ for lines_ in epochs):
                continue  # one epoch's figure among others, of which the first alone is too low
            if read:
                yield _finding(script, Place(script.file, read, 1, read, len(lines[read - 1]) + 1), number)
                return


def _outermost(script: Script, begin: int, end: int, start: int) -> tuple[int, int]:
    """The lines of the outermost loop behind the clock's start that holds these: the one over micro-batches stands in one
    over steps."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.For | ast.While) and start < node.lineno <= begin and end <= (node.end_lineno or 0):
            begin, end = min(begin, node.lineno), max(end, node.end_lineno or 0)
    return begin, end


def _head(functions: Sequence[ast.FunctionDef], line: int) -> int:
    """Where the function begins that a line stands in; the line itself outside of any."""
    return max((one.lineno for one in functions if one.lineno <= line <= (one.end_lineno or 0)), default=line)


_BEGUN = re.compile(rf"^\s*(self\.\w+)\s*=\s*{CLOCK}", re.MULTILINE)


def _by_a_callback(script: Script, project: Project) -> Iterator[Finding]:
    """A trainer's callback that takes the clock once, where training begins, and makes a speed of it at each log."""
    lines = script.source.split("\n")
    for node in ast.walk(script.tree) if "on_train_begin" in script.source else ():
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        begin = methods.get("on_train_begin")
        if begin is None or _is_warm(lines[node.lineno - 1 : node.end_lineno]):
            continue
        held = "\n".join(lines[begin.lineno - 1 : begin.end_lineno])
        for found in _BEGUN.finditer(held):
            taken = rf"^\s*{re.escape(found[1])}\s*=[^=]"
            whole = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if len([one for one in re.findall(taken + ".*", whole, re.MULTILINE) if "None" not in one]) != 1:
                continue  # taken anew
            at_its_end = ("on_train_end",) if _is_a_short_run(project) else ()
            for name in ("on_log", "on_step_end", *at_its_end):
                method = methods.get(name)
                read = speed_since(lines, method.lineno, method.end_lineno or 0, re.escape(found[1])) if method else 0
                if read:
                    start = begin.lineno + held.count("\n", 0, found.start(1))
                    yield _finding(script, Place(script.file, read, 1, read, len(lines[read - 1]) + 1), start)
                    return


FEW = 300
"""Steps of a run of which the first one is a part that is seen, and more so where it compiles."""


def _is_a_short_run(project: Project) -> bool:
    """Every job of the project takes few steps by its own word: the mean over a long run hides what its first step took."""
    steps = [asked.number(job, "max_steps") or -1 for job in project.jobs]
    return bool(steps) and all(0 < one <= FEW for one in steps)


def _of_several_turns(script: Script) -> list[range]:
    """Lines of the bodies of loops."""
    return [
        range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.While) or (isinstance(node, ast.For) and ast.unparse(node.iter) != "range(1)")
    ]


_RATE = re.compile(r"sched|num_warmup|(?<![a-z])lrs?(?![a-z])|learning_rate|cosine", re.IGNORECASE)


def _is_warm(lines: list[str]) -> bool:
    """The first steps are told apart: by a line that, with the two below, is not about the learning rate's warm-up."""
    told = [
        line
        for at, line in enumerate(lines)
        if _WARM.search(line) and not any(_RATE.search(one) for one in lines[at : at + 3])
    ]
    return any(re.search(r"\bif\b|\brange\(|\bcontinue\b", line) for line in told)


def _around_a_trainer(script: Script) -> Iterator[Finding]:
    """The clock is taken right before `trainer.train()`, and a speed is made of it right after."""
    lines = [line.partition("  #")[0] for line in script.source.split("\n")]
    for call in script.calls:
        if not call.name.endswith(".train") or "rainer" not in f"{call.on}{call.name}" or call.name.endswith("Trainer"):
            continue
        line = call.place.line
        for number in range(max(line - 4, 1), line):
            start = start_of(lines[number - 1])
            if not start or re.search(r"warm", "\n".join(lines[max(0, number - 12) : line]), re.IGNORECASE):
                continue
            read = speed_since(lines, line, min(line + 12, len(lines)), re.escape(start))
            if read:
                yield _finding(script, Place(script.file, read, 1, read, len(lines[read - 1]) + 1), number, _IN_A_CALL)
                return


_IN_A_LOOP = "Start the clock and the counts anew after the first 10 steps, and at every log."
_IN_A_CALL = "Start the clock in a `TrainerCallback` (`on_step_end`, at the tenth step), and count from there."


def _finding(script: Script, place: Place, start: int, remedy: str = _IN_A_LOOP) -> Finding:
    compiled = "torch.compile(" in script.source
    return Finding(
        f"The speed is an average since {'its clock was started' if script.file.endswith('.ipynb') else f'line {start}'},"
        f" before the first step: {'compilation, ' if compiled else ''}memory allocation and warm-up are in it.",
        place=place,
        evidence=Evidence(Level.TEXT, {"clock starts at line": start} | ({"compiled": True} if compiled else {})),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.SAFE,
            remedy,
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
        also=(Place(script.file, start),),
    )


_LOOP = """import time
import torch

model = torch.compile(model.cuda())
start, tokens = time.time(), 0
for step, batch in enumerate(train_loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    tokens += int(batch["attention_mask"].sum())
    {}
    if step % 50 == 0:
        print("tokens per second", tokens / (time.time() - start))
"""
RULE = Rule(
    code="MSR004",
    name="warm-up-counted",
    summary="A speed counts compilation and warm-up.",
    group=Group.MEASURE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The clock starts before the loop and is never started anew, and a speed is made of it.",
        why="The first steps compile, allocate and tune: seconds to minutes. A short run reads slower than it"
        " is, a change that"
        " compiles longer reads as a slow-down (a fused loss was blamed for half of the speed that way).",
        detected="E0: a clock is taken before a training loop, nothing in the loop takes it again or tells"
        " warm-up apart, and"
        " something that is counted is divided by the time since. So, too, a mean of the times of all steps, a timer or"
        " CUDA's events around all of them, a clock that runs while the model is loaded or around a whole"
        " command, and a callback's time from the beginning to the end of a run of few steps.",
        proven="Print the speed of every 50 steps: it rises.",
        deliberate=("Time to result is what counts, start included.",),
        sources=("alpa issue 823, anemoi-core issue 1254, transformers issue 32619: what users ask to have left out",),
    ),
    bad=Example({"train.py": _LOOP.format("pass")}, says="before the first step"),
    good=Example({"train.py": _LOOP.format("if step == 10:\n        start, tokens = time.time(), 0")}),
)
