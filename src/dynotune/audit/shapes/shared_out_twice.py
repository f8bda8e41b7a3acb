"""The length of a loader that is one process's share, divided by the number of processes once more."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import RANKS, factors, is_ranks, last_part
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_COUNTS = re.compile(r"step|update|iter|total|epoch|schedul", re.IGNORECASE)
_LENGTH = re.compile(r"^len\([\w.\[\]'\"]*(loader|(?<![a-z])dl|batches)\w*\)$", re.IGNORECASE)
_SHARED = re.compile(r"sampler\s*=\s*(\w*[sS]ampler\b|\w*DistributedSampler\()|distributed_sampler")


def shared_out_twice(script: Script, project: Project) -> Iterator[Said]:
    """`len(loader) // (accumulation * world_size)`, of a loader with a `DistributedSampler`, or one that Accelerate has
    prepared by then."""
    if "len(" not in script.source:
        return
    near = [code(one) for one in connected(script, project)]
    by_sampler = any("DistributedSampler(" in one for one in near) and any(_SHARED.search(one) for one in near)
    accelerates = any("Accelerator(" in one for one in near)
    for room in ast.walk(script.tree):
        if not isinstance(room, ast.FunctionDef | ast.Module):
            continue
        prepared = _prepared(room)
        for node in own_nodes(room):
            if not isinstance(node, ast.Assign) or not _COUNTS.search(last_part(node.targets[0])):
                continue
            length, ranks = _quotient(node.value)
            held = re.sub(r"^len\(|\)$", "", length).rpartition(".")[2]
            shared = prepared.get(held, node.lineno) < node.lineno or (by_sampler and not accelerates)
            if length and ranks and shared:
                yield _finding(script, node, length, ranks)
                return


def _finding(script: Script, node: ast.Assign, length: str, ranks: str) -> Finding:
    return Finding(
        f"`{ast.unparse(node.targets[0])}` divides `{length}`, which is one process's share already, by `{ranks}`: with N"
        " processes a schedule that is made by it is through after an N-th of the run.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"steps": ast.unparse(node.value)[:80], "shared out by": ranks}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Leave the number of processes out: the sampler has divided the rows among them.",
            accuracy="The learning rate falls over the whole run.",
            measure="Print the learning rate of the last step.",
        ),
    )


def _prepared(room: ast.FunctionDef | ast.Module) -> dict[str, int]:
    """Names that come out of `accelerator.prepare(...)`, by the line."""
    found: dict[str, int] = {}
    for node in own_nodes(room):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func).endswith(".prepare"):
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
            found |= {last_part(target): node.lineno for target in targets}
    return found


def _quotient(value: ast.expr) -> tuple[str, str]:
    """The length that is divided, and the number of processes among what divides it; empty where either is missing."""
    length, ranks = "", ""
    while isinstance(value, ast.Call | ast.BinOp):
        if isinstance(value, ast.Call):
            if _LENGTH.match(ast.unparse(value)):
                length = ast.unparse(value)
                break
            parts = [one for one in value.args if not isinstance(one, ast.Constant)]
            if ast.unparse(value.func) not in ("max", "int", "round", "math.ceil", "math.floor") or len(parts) != 1:
                break
            value = parts[0]
        elif isinstance(value.op, ast.FloorDiv | ast.Div):
            named = [one for one in factors(value.right) if is_ranks(one)]
            ranks = ranks or next((ast.unparse(one) for one in named), "")
            value = value.left
        elif isinstance(value.op, ast.Mult) and not RANKS.search(ast.unparse(value.right)):
            value = value.left  # by the number of epochs
        else:
            break
    return length, ranks
