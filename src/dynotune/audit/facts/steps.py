"""What a script runs at every step, in the questions that several rules ask of its calls and its text."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.place import Place

_DEVICE = re.compile(r"cuda|accelerat|deepspeed|\.to\((self\.)?device|Fabric|fsdp", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that takes training steps."""

    place: Place
    calls: Sequence[Call]
    """In it, and in helpers that it calls."""

    text: str

    def has(self, *names: str) -> list[Call]:
        """Calls by the last part of their names."""
        return [call for call in self.calls if call.name.rpartition(".")[2] in names]

    @property
    def optimizer_steps(self) -> list[Call]:
        return [call for call in self.has("step") if _is_optimizer(call)]


def loops(script: Script) -> Iterator[Loop]:
    """Loops with a backward pass in them; none of what a trainer calls (`forward`, `compute_loss`)."""
    found: dict[Place, list[Call]] = {}
    for call in script.calls:
        if call.in_training_loop and call.loop is not None:
            found.setdefault(call.loop, []).append(call)
    for place, calls in found.items():
        whole = text_at(script, place)
        looping = whole.startswith(("for ", "while ", "async for "))
        if looping and any(call.name.rpartition(".")[2] in ("backward", "manual_backward") for call in calls):
            yield Loop(place, calls, whole)


def takes_steps(script: Script) -> bool:
    """Whether an optimizer steps in one of its training loops, also behind an inner loop over micro-batches."""
    stepping = any(
        call.in_training_loop and call.name.rpartition(".")[2] == "step" and _is_optimizer(call)
        for call in script.calls
    )
    return stepping and any(loops(script))


_OFTEN = r"[\w.]*(accum|grad_acc|gas\b)[\w.\"'\[\]]*"
_EVERY = re.compile(rf"%\s{{0,8}}\(?\s{{0,8}}({_OFTEN})", re.IGNORECASE)
_RANGE = re.compile(r"for\s+(\w+)\s+in\s+range\(\s*([\w.\"'\[\]]+)\s*\)\s*:", re.IGNORECASE)
_OF_MICRO_BATCHES = re.compile(rf"{_OFTEN}|\w*micro\w*", re.IGNORECASE)
"""What a loop over micro-batches, or their number, is called: one over tasks adds gradients up, too, and rightly."""

_OF_ANOTHER = re.compile(r"save|log|eval|print|critic|disc|warm", re.IGNORECASE)
_TURNS = re.compile(r"%\s{0,8}([\w.\"'\[\]]+)\s*(?:==|\)|$)|^not .*%\s{0,8}([\w.\"'\[\]]+)$")
"""A condition that holds once in so many turns: optimizer's steps under it are accumulation, whatever it is called."""


def accumulation(script: Script, loop: Loop) -> tuple[str, list[Call]]:
    """The number of micro-batches of a step as the source calls it, and the optimizer's steps: under a condition of the
    loop, or after a loop over that many. Empty: the loop accumulates nothing by hand."""
    if (every := _EVERY.search(loop.text)) is not None:
        return _whole(every[1]), [call for call in loop.optimizer_steps if not call.each_step]
    held_back = [call for call in loop.optimizer_steps if not call.each_step]
    for call in held_back if len(held_back) == len(loop.optimizer_steps) else ():
        within = next((one.name for one in reversed(call.around) if one.kind == "if"), "")
        if (turns := _TURNS.search(within)) is not None and not _OF_ANOTHER.search(turns[1] or turns[2]):
            return turns[1] or turns[2], held_back
    if (every := _RANGE.match(loop.text)) is None or loop.optimizer_steps:
        return "", []
    if not any(_OF_MICRO_BATCHES.search(one) for one in every.groups()):
        return "", []
    outer = Loop(loop.place, [call for call in script.calls if _goes_round(call, loop)], "")
    return every[2], outer.optimizer_steps


def _whole(name: str) -> str:
    """Without brackets that were opened before it."""
    while name and name[-1] in "]'\"" and name.count("[") < name.count("]"):
        name = name[:-1]
    return name


def _goes_round(call: Call, loop: Loop) -> bool:
    """It runs at each turn of a loop that holds this one, after it."""
    held = call.loop is not None and call.loop.line < loop.place.line and loop.place.end_line <= call.loop.end_line
    return held and call.each_step and call.place.line > loop.place.end_line


def per_step(script: Script, *names: str) -> Iterator[Call]:
    """Calls in methods of this name that run at each step, under no condition."""
    for call in script.calls:
        function = next((around.name for around in reversed(call.around) if around.kind == "function"), "")
        if call.each_step and function in names and call.loop is not None:
            yield call


def helpers(script: Script, project: Project) -> Iterator[tuple[Script, Sequence[Call]]]:
    """Functions and methods of other files that a loop of this one calls at every step, with what they always call."""
    seen: set[tuple[str, str, str]] = set()
    for loop in loops(script):
        for call in loop.calls:
            parts = call.name.lstrip(".").split(".")
            if not call.each_step or len(parts) < 2:
                continue
            *before, last = parts
            owner = before.pop() if before[-1][:1].isupper() and len(before) > 1 else ""
            for other in project.scripts:
                stem = other.file.rpartition("/")[2].removesuffix(".py")
                if other is script or stem != before[-1] or (other.file, owner, last) in seen:
                    continue
                seen.add((other.file, owner, last))
                inside = [one for one in other.calls if _is_in(one, owner, last)]
                if inside:
                    yield other, inside


def _is_in(call: Call, owner: str, function: str) -> bool:
    """It stands in this function, of this class or of none, under no condition."""
    around = [one for one in call.around if one.kind not in ("with", "main", "for", "while")]
    wanted = [("class", owner)] * bool(owner) + [("function", function)]
    return [(one.kind, one.name) for one in around] == wanted


@lru_cache(maxsize=32)
def _lines(source: str) -> tuple[str, ...]:
    """Once for a file, of which thousands of places are asked for."""
    return tuple(source.split("\n"))


def text_at(script: Script, place: Place) -> str:
    """The source at a place."""
    if not place.line:
        return ""
    lines = list(_lines(script.source)[place.line - 1 : place.end_line])
    if not lines:
        return ""
    lines[-1] = lines[-1][: place.end_column - 1]
    lines[0] = lines[0][place.column - 1 :]
    return "\n".join(lines)


def on_device(script: Script) -> bool:
    """Whether the file speaks of a device at all; a loop on the CPU has nothing to wait for."""
    return bool(_DEVICE.search(script.source))


def is_scheduler(call: Call) -> bool:
    return "sched" in call.on.lower() or "LRScheduler" in call.name or ".lr_scheduler." in call.name


def _is_optimizer(call: Call) -> bool:
    named = re.search(r"optim|\bopt\b|scaler", call.on, re.IGNORECASE) or "optim." in call.name
    return bool(named) and not is_scheduler(call)


def place_of(script: Script, node: ast.AST) -> Place:
    """Of an expression or statement; columns by characters."""
    line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
    texts = script.source.split("\n")
    if not line or end > len(texts):
        return Place(script.file)
    start = len(texts[line - 1].encode()[: getattr(node, "col_offset", 0)].decode(errors="replace"))
    stop = len(texts[end - 1].encode()[: getattr(node, "end_col_offset", 0)].decode(errors="replace"))
    return Place(script.file, line, start + 1, end, stop + 1)
