"""MSR002: a clock that is read before the device has done the work."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import Loop, loops, on_device, text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_CLOCKS = frozenset({"time.time", "time.perf_counter", "time.monotonic", "time.perf_counter_ns", "time.time_ns"})
_WAITS = re.compile(
    r"synchronize|\.item\(|\.cpu\(|\.tolist\(|cuda\.Event|float\(\w*loss|print\(.*loss|\.numpy\(|wait_for_everyone"
)


def check(script: Script, project: Project) -> Iterator[Said]:
    if not on_device(script):
        return
    yield from _of_forward_passes(script)
    for loop in loops(script):
        yield from _of_the_whole(script, loop)
        clocks = [call for call in loop.calls if call.name in _CLOCKS and call.each_step]
        inside = [call for call in clocks if loop.place.line < call.place.line <= loop.place.end_line]
        starts = [call for call in inside if re.fullmatch(r"\w+", call.result)]
        backward = loop.has("backward")
        if not starts or not backward or _WAITS.search(loop.text):
            continue
        if any(_WAITS.search(text_at(script, call.place)) for call in loop.calls):
            continue  # in a helper
        for start in starts:
            stops = [
                one
                for one in _stops(script, inside, start, loop)
                if any(start.place.line < call.place.line < one.place.line for call in backward)
            ]
            if not stops:
                continue
            stop = stops[0]
            if len(re.findall(rf"^\s*{start.result}\s*=", loop.text, re.MULTILINE)) != 1:
                continue  # taken again at the end: from one end to the next all work is in
            yield _finding(start.result, "and read within a step", stop, start)
            break


_FORWARD = re.compile(r"(?:^|[._])(?:model|net|module|layer|attn|attention|block|engine)\d?$", re.IGNORECASE)


def _of_forward_passes(script: Script) -> Iterator[Said]:
    """A loop of forward passes without training, between a clock and its reading: `for _ in range(100): model(x)`."""
    for room in ast.walk(script.tree):
        body: list[ast.stmt] = room.body if isinstance(room, ast.Module | ast.FunctionDef | ast.With | ast.If) else []
        for number, node in enumerate(body):
            if not isinstance(node, ast.For) or not 0 < number < len(body) - 1:
                continue
            start, stop = _clock(body[number - 1]), body[number + 1]
            text = ast.unparse(node)
            runs = [
                one for one in ast.walk(node) if isinstance(one, ast.Call) and _FORWARD.search(ast.unparse(one.func))
            ]
            read = (
                re.search(rf"\b(?:time|perf_counter|monotonic)\(\) - {start}\b", ast.unparse(stop)) if start else None
            )
            if not runs or read is None or _WAITS.search(text) or "backward" in text or "generate" in text:
                continue
            calls = {one.place.line: one for one in script.calls if one.name in _CLOCKS}
            first = calls.get(body[number - 1].lineno)
            last = next((one for line, one in calls.items() if stop.lineno <= line <= (stop.end_lineno or 0)), None)
            if first is not None and last is not None:
                yield _finding(start, "before the loop and read behind it", last, first)
                return


def _clock(node: ast.stmt) -> str:
    """The name that is given the time there."""
    named = node.targets[0] if isinstance(node, ast.Assign) else None
    given = ast.unparse(node.value) if isinstance(node, ast.Assign) else ""
    taken = re.fullmatch(r"(?:\w+\.)?(?:time|perf_counter|monotonic)\(\)", given)
    return named.id if isinstance(named, ast.Name) and taken else ""


def _of_the_whole(script: Script, loop: Loop) -> Iterator[Said]:
    """The clock is taken before the loop and read after it, and nothing in between waits."""
    lines = script.source.split("\n")
    for call in script.calls:
        if call.name not in _CLOCKS or call.in_training_loop or not 0 < call.place.line - loop.place.end_line <= 8:
            continue
        found = re.search(r"-\s*(\w+)\b", lines[call.place.line - 1][call.place.column - 1 :])
        here = lines[call.place.line - 1][: max(call.place.column - 1, 0)]  # `torch.cuda.synchronize(); took = ...`
        between = "\n".join([*lines[loop.place.end_line : call.place.line - 1], here])
        if found is None or _WAITS.search(between) or _WAITS.search(loop.text):
            continue
        start = next((one for one in script.calls if one.name in _CLOCKS and one.place.line < loop.place.line), None)
        taken = re.compile(rf"\b{re.escape(found[1])}\b.*=")
        if start is not None and taken.search(lines[start.place.line - 1]):
            yield _finding(found[1], "before the loop and read behind it", call, start)
            return


def _finding(name: str, how: str, stop: Call, start: Call) -> Finding:
    return Finding(
        f"`{name}` is taken {how}, and nothing waits for the device between: it times how fast the host asks,"
        f" not how fast the"
        " work is done.",
        place=stop.place,
        evidence=Evidence(Level.TEXT, {"clock": stop.name}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.SAFE,
            "Time many steps at once with `torch.cuda.synchronize()` at both ends, or record `torch.cuda.Event`s.",
            measure="dynotune profile -- python train.py",
        ),
        also=(start.place,),
    )


def _stops(script: Script, clocks: list[Call], start: Call, loop: Loop) -> Iterator[Call]:
    """Where the clock is read against its start, later in the same round."""
    lines = script.source.split("\n")
    for call in clocks:
        text = lines[call.place.line - 1] if call.place.line else ""
        since = rf"-\s*{re.escape(start.result)}\b"
        named = rf"\b{re.escape(call.result)}\s*{since}" if re.fullmatch(r"\w+", call.result) else since
        if call.place.line > start.place.line and (re.search(since, text) or re.search(named, loop.text)):
            yield call


_LOOP = """import time
import torch

model.cuda()
for batch in train_loader:
    start = time.perf_counter()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
%s    seconds.append(time.perf_counter() - start)
"""
RULE = Rule(
    code="MSR002",
    name="clock-without-waiting",
    summary="A step is timed without waiting for the device.",
    group=Group.MEASURE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Kernels run after the call that asks for them has returned. A host's clock around them shows the asking.",
        why="Such a figure can be ten times too small, changes with what happens to wait, and rewards asking.",
        detected="E0: within one round of a training loop a clock is started before the backward pass and read"
        " after it, and"
        " nothing in the loop waits for the device. A clock from the end of a step to the end of the next is not"
        " reported: over many steps it is right. The same of a loop of forward passes between a clock and its reading.",
        proven="Put `torch.cuda.synchronize()` before both readings and compare.",
        deliberate=("The host's share of the step is what is wanted.",),
        sources=("PyTorch's CUDA semantics, asynchronous execution",),
    ),
    bad=Example({"train.py": _LOOP % ""}, says="nothing waits"),
    good=Example({"train.py": _LOOP % "    torch.cuda.synchronize()\n"}),
)
