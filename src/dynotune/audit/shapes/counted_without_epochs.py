"""A schedule is made for the batches of one epoch, or for the rows of the data, and advanced at every batch of a run."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.ranks import values_of
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import is_scheduler, loops, place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.shapes.counted_in_epochs import epochs
from dynotune.audit.shapes.counted_in_micro_batches import IN_BATCHES, total_of

_ENDS = re.compile(r"get_\w*(?:schedule|scheduler)\w*$|(?:Linear|Polynomial)LR$")
"""Schedules that stay at their end. PyTorch's cosine goes up again, and may be meant to at each epoch."""

_LENGTH = re.compile(r"len\(([\w.\[\]'\"]{1,60})\)")


def counted_without_epochs(script: Script) -> Iterator[Said]:
    if "LightningModule" in script.source or "ched" not in script.source or "len(" not in script.source:
        return
    inside = [loop.place for loop in loops(script)]
    values = values_of(script)
    for call in script.calls:
        if call.name.rpartition(".")[2] != "step" or not is_scheduler(call) or not call.in_training_loop:
            continue
        made, total = total_of(call.on.rpartition(".")[2], values)
        if made is None or not total or "deepspeed" in script.source:
            continue
        rows = _rows(script, total)
        if rows:
            yield _finding(
                script,
                made,
                call,
                f"`{call.on}` is made for `{total[:60]}` steps, which counts the rows of `{rows[0]}`, and"
                f" `{call.on}.step()` runs once in a batch of `{rows[1]}` of them: the learning rate hardly begins to fall.",
                f"Count batches: `len` of the loader, not of `{rows[0]}`.",
            )
            return
        around = [node for node, _ in epochs(script) if _holds(node, call.place.line)]
        once = [place for place in inside if place.line <= call.place.line <= place.end_line]
        if not around or not _of_one_epoch(total) or not _ENDS.search(ast.unparse(made.func)):
            continue
        if not once or "constant" in ast.unparse(made) or any(_holds(node, made.lineno) for node in around):
            continue
        if any(place.line == around[0].lineno for place in once) and len(once) < 2 and not _inner(around[0], call):
            continue
        stop = next(stop for node, stop in epochs(script) if node is around[0])
        if isinstance(stop, ast.Constant) and stop.value == 1:
            continue
        yield _finding(
            script,
            made,
            call,
            f"`{call.on}` is made for `{total[:60]}` steps, the batches of one epoch, and advanced through"
            f" `{ast.unparse(stop)}` of them: from the second epoch on the learning rate stays at its end, which is zero.",
            f"Multiply its steps by `{ast.unparse(stop)}`.",
        )
        return


def _holds(node: ast.For | ast.While, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _inner(epoch: ast.For, call: Call) -> bool:
    """A loop within that over epochs holds the call."""
    return any(
        isinstance(node, ast.For | ast.While) and node is not epoch and _holds(node, call.place.line)
        for node in ast.walk(epoch)
    )


def _of_one_epoch(total: str) -> bool:
    """The length of a loader, at most divided."""
    bare = re.sub(r"[()\s]", "", total)
    return bool(IN_BATCHES.search(total)) and "*" not in bare and "+" not in bare and "epoch" not in bare.lower()


def _rows(script: Script, total: str) -> tuple[str, str] | None:
    """The data set whose length is counted, and the rows of its loader's batches."""
    if "/" in total:
        return None
    counted = {found[1] for found in _LENGTH.finditer(total)}
    for call in script.calls_of("DataLoader"):
        batch = call.arguments.get("batch_size") or call.arguments.get("1")
        if batch is None or batch.value in (1, None) or "batch_sampler" in call.arguments:
            continue
        for node in ast.walk(script.tree):
            if isinstance(node, ast.Call) and node.lineno == call.place.line and node.args:
                data = ast.unparse(node.args[0])
                size = next((ast.unparse(one.value) for one in node.keywords if one.arg == "batch_size"), "")
                if ast.unparse(node.func).endswith("DataLoader") and data in counted and size:
                    return data, size
    return None


def _finding(script: Script, made: ast.Call, call: Call, message: str, remedy: str) -> Finding:
    return Finding(
        message,
        place=place_of(script, made),
        evidence=Evidence(Level.TEXT, {"made by": ast.unparse(made)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            remedy,
            accuracy="The learning rate falls over the whole run.",
            measure="Print the learning rate of the last step.",
        ),
        also=(call.place,),
    )
