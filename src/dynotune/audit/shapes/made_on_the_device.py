"""A generator of batches makes each from lists, on the GPU itself: nothing is ready when the step ends."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of, takes_steps
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_MAKES = re.compile(r"(?:^|\.)(?:tensor|as_tensor|LongTensor|from_numpy)$")
_DEVICE = re.compile(r"cuda|device|gpu", re.IGNORECASE)


def made_on_the_device(script: Script, project: Project) -> Iterator[Said]:
    """`yield torch.tensor(ids, device="cuda")` in an `__iter__` or a generator that a training loop goes over."""
    if "yield" not in script.source or "torch" not in script.source:
        return
    near = connected(script, project)
    if any(re.search(r"pin_memory|DataLoader|Prefetch|prefetch|cuda\.Stream|Thread", one.source) for one in near):
        return
    if not any(takes_steps(one) for one in near) or not any("cuda" in one.source for one in near):
        return
    for room in ast.walk(script.tree):
        if not isinstance(room, ast.FunctionDef):
            continue
        nodes = list(own_nodes(room))
        rounds = [one for one in nodes if isinstance(one, ast.For | ast.While)]
        if not rounds or not any(isinstance(one, ast.Yield) for one in nodes):
            continue
        made = [
            one
            for one in nodes
            if isinstance(one, ast.Call)
            and _is_copied(one)
            and any(each.lineno < one.lineno <= (each.end_lineno or 0) for each in rounds)
        ]
        if made:
            yield Finding(
                f"`{room.name}` makes each batch from lists and copies it to the GPU"
                f" (`{ast.unparse(made[0])[:60]}`) when the"
                " loop asks for it: from memory that is not pinned, while the device waits, and no batch is"
                " prepared ahead.",
                place=place_of(script, made[0]),
                evidence=Evidence(Level.TEXT, {"pinned": False, "prepared ahead": False}),
                stake=Stake(AtStake.TIME),
                remedy=Remedy(
                    Risk.OPERATIONAL,
                    "Give the rows to a `DataLoader` with a collating function, a worker and `pin_memory=True`, and"
                    " copy with"
                    " `non_blocking=True`; or make the next batch, pinned, before the step's backward pass.",
                    effort=Effort.MINUTES,
                    measure="dynotune profile -- python train.py",
                ),
            )
            return


def _is_copied(call: ast.Call) -> bool:
    """`torch.tensor(ids, device=device)`, `torch.tensor(ids).cuda()` and `.to(device)`."""
    func = call.func
    if _MAKES.search(ast.unparse(func)):
        given = next((one.value for one in call.keywords if one.arg == "device"), None)
        return given is not None and bool(_DEVICE.search(ast.unparse(given)))
    if isinstance(func, ast.Attribute) and func.attr in ("cuda", "to") and isinstance(func.value, ast.Call):
        to = func.attr == "cuda" or (bool(call.args) and bool(_DEVICE.search(ast.unparse(call.args[0]))))
        return to and bool(_MAKES.search(ast.unparse(func.value.func)))
    return False
