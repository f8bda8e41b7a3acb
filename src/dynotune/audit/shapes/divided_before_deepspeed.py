"""A loop divides its loss by the accumulation, and DeepSpeed's `backward` does so once more."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, place_of
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
    nodes = [node for node in ast.walk(script.tree) if isinstance(node, ast.Assign | ast.AugAssign | ast.Call)]
    for loop in loops(script):
        lines = range(loop.place.line, loop.place.end_line + 1)
        steps = loop.has("backward")
        handed = {
            argument
            for call in steps
            for argument in re.findall(rf"{re.escape(call.on)}\.backward\(\s*(\w+)\s*\)", loop.text)
        }
        last = max((call.place.line for call in steps), default=0)  # what is divided behind it is shown
        for node in nodes:
            if node.lineno in lines and node.lineno <= last and _divides(node, handed, every):
                place = place_of(script, node)
                yield _finding(place, every, held.places.get(_KEY, Place(held.file)))
                return


def _file(script: Script, project: Project) -> ConfigFile | None:
    """The only DeepSpeed file that commands give the program, or that is there."""
    there = [one for one in project.configs if one.kind == "deepspeed"]
    named = {name for launch in project.launches if launch.script == script.file for name in launch.configs}
    given = [one for one in there if one.file in named] or there
    return given[0] if len(given) == 1 else None


def _divides(node: ast.AST, handed: set[str], every: int) -> bool:
    """`loss = ... / 4`, `loss /= accum`, `engine.backward(loss / 4)`: by the number, or by what is called it."""
    by: ast.expr | None = None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Div):
        named = {one.id for one in node.targets if isinstance(one, ast.Name)}
        by = node.value.right if named & handed else None
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and isinstance(node.target, ast.Name):
        by = node.value if node.target.id in handed else None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        first = node.args[0] if node.args else None
        by = first.right if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Div) else None
    if by is None:
        return False
    return (isinstance(by, ast.Constant) and by.value == every) or bool(ACCUMULATION.search(ast.unparse(by)))


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
