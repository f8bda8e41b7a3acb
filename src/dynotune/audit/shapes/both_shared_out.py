"""Batch and accumulation are both divided by the number of processes, where one of the two shares a step's rows out."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.names_of_settings import ACCUMULATION
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import RANKS, is_ranks, last_part, on_several, values_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_BATCH = re.compile(r"^(?:global_|total_|effective_|train_)?(?:batch_size|batchsize|batch|bsz?)$", re.IGNORECASE)
_ROUNDS = ("max", "int", "round", "math.ceil", "math.floor", "ceil", "floor")
_SHELL = re.compile(
    r"^\s*(?:export\s+)?\w{1,60}=[\"']?\$\(\(\s*\$?\{?(\w{1,60})\}?\s*/\s*\$?\{?(\w{1,60})\}?\s*\)\)", re.MULTILINE
)


def both_shared_out(script: Script, project: Project) -> Iterator[Said]:
    """`per_device_train_batch_size=args.batch_size // world, gradient_accumulation_steps=args.accum // world`."""
    if not RANKS.search(script.source) or not ACCUMULATION.search(script.source) or "/" not in script.source:
        return
    values = values_of(script)
    batch, steps = [], []
    for node, held in _shared_out(script):
        name = last_part(held)
        if ACCUMULATION.search(name):
            given = values.get(name, []) if isinstance(held, ast.Name) else []
            if not any(_is_quotient(one) for one in given if one is not node):
                steps.append((node, name))
        elif _BATCH.match(name):
            batch.append((node, name))
    found = next(((one, other) for one in batch for other in steps if not _exclusive(script, one[0], other[0])), None)
    if found is None or not on_several(script, project):
        return
    (rows, of_rows), (often, of_steps) = found
    yield _finding(place_of(script, often), ast.unparse(often), of_steps, place_of(script, rows), of_rows)


def both_shared_out_by_the_shell(launch: Launch, project: Project) -> Iterator[Said]:
    """`BS=$((BATCH_SIZE / GPUS))` beside `ACC=$((ACCUM / GPUS))`."""
    text = project.texts.get(launch.file, "")
    found: dict[str, tuple[str, int]] = {}
    for one in _SHELL.finditer(text):
        kind = "steps" if ACCUMULATION.search(one[1]) else "rows" if _BATCH.match(one[1]) else ""
        if kind and RANKS.search(one[2]):
            found.setdefault(kind, (one[1], text.count("\n", 0, one.start(1)) + 1))
    if len(found) < 2:
        return
    (steps, line), (rows, other) = found["steps"], found["rows"]
    shown = text.split("\n")[line - 1].strip()
    yield _finding(Place(launch.file, line), shown, steps, Place(launch.file, other), rows)


def _shared_out(script: Script) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Divisions by the number of processes alone, with what is divided."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div) and is_ranks(node.right):
            yield node, _bare(node.left)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.FloorDiv | ast.Div) and is_ranks(node.value):
            yield node, node.target


def _bare(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and ast.unparse(node.func) in _ROUNDS and node.args:
        node = node.args[0]
    return node


def _is_quotient(node: ast.expr) -> bool:
    """`total // micro`: what it is divided by afterwards is not divided twice."""
    node = _bare(node)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div) and not is_ranks(node.right)


def _exclusive(script: Script, one: ast.AST, other: ast.AST) -> bool:
    """They stand in two branches of a condition."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.If | ast.IfExp):
            body, rest = _within(node.body), _within(node.orelse)
            if (one in body and other in rest) or (other in body and one in rest):
                return True
    return False


def _within(part: list[ast.stmt] | ast.expr) -> set[ast.AST]:
    return {node for top in (part if isinstance(part, list) else [part]) for node in ast.walk(top)}


def _finding(place: Place, shown: str, steps: str, other: Place, rows: str) -> Finding:
    return Finding(
        f"`{shown}` divides the accumulation `{steps}` by the number of processes, and the batch `{rows}` is divided by it"
        f" already (line {other.line}): with N of them a step holds one N-th of the rows that were meant.",
        place=place,
        evidence=Evidence(Level.TEXT, {"accumulation": steps, "batch": rows}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take `{steps}` as it is.",
            accuracy="Steps hold the rows that were meant.",
            measure="Print the rows of a step: micro-batch x accumulation x processes.",
        ),
        also=(other,),
    )
