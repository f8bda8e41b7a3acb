"""An accumulation is divided by the GPUs that one process sees, and one model is spread over all of them."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.cards import shows_one
from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import values_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.shapes.spread_beside import SPREAD

_COUNT = re.compile(r"\bcuda\.device_count\(\)")


def divided_by_spread_gpus(script: Script, project: Project) -> Iterator[Said]:
    """`gradient_accumulation_steps=64 // 4 // torch.cuda.device_count()` beside `device_map="auto"`, started by `python`."""
    if "device_count()" not in script.source:
        return
    mapped = [
        call.arguments["device_map"]
        for call in script.calls_of("from_pretrained")
        if "device_map" in call.arguments and "Model" in call.name
    ]
    spread = [one for one in mapped if one.value in SPREAD and not one.others]
    starts = [launch for launch in project.launches if launch.script == script.file]
    alone = bool(starts) and all(not launch.launcher and not shows_one(launch) for launch in starts)
    if len(spread) != 1 or len(mapped) != 1 or not alone:
        return
    values = values_of(script)
    names = {name for name, given in values.items() if any(_COUNT.search(ast.unparse(one)) for one in given)}
    for node in ast.walk(script.tree):
        held = [(node.arg or "", node.value)] if isinstance(node, ast.keyword) else []
        if isinstance(node, ast.Assign):
            held = [(one.id, node.value) for one in node.targets if isinstance(one, ast.Name)]
        for name, value in held:
            if ACCUMULATION.search(name) and any(_by_gpus(one, names) for one in ast.walk(value)):
                shown = ast.unparse(value)
                yield Finding(
                    f"`{name} = {shown}` divides by the GPUs as if each had rows of its own, and"
                    f" `device_map: {spread[0].value}` spreads one model over them in one process: a step holds that many"
                    " times less rows than were meant, and the GPUs work one after the other.",
                    place=place_of(script, value),
                    evidence=Evidence(Level.RESOLVED, {"device_map": spread[0].value, "processes": 1}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Take `device_map` out and start one process a GPU (`torchrun --nproc_per_node N`), or leave the"
                        " number of GPUs out of the accumulation.",
                        effort=Effort.MINUTES,
                        accuracy="Steps hold the rows that were meant.",
                    ),
                    also=(spread[0].place,),
                )
                return


def _by_gpus(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv | ast.Div):
        return False
    inside = [*ast.walk(node.right)]
    named = any(isinstance(one, ast.Name) and one.id in names for one in inside)
    return named or bool(_COUNT.search(ast.unparse(node.right)))
