"""A loss is divided by the number of ranks, or by what all ranks have counted together, where another file or"
" method makes
it, and the gradients are averaged over the ranks as well."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import on_several
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.scaled import Factor, factors_of
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.shapes.divided_twice import OF_TRAINERS, methods, returned

_RANKS = re.compile(
    r"(?:[\w.]+\.)?(?:world_?size|num_processes|n_?ranks|world|get_world_size\(\))"
    r"|int\(os\.(?:environ\[|environ\.get\(|getenv\()['\"]WORLD_SIZE['\"][^()]*[\])]\)",
    re.IGNORECASE,
)
_AVERAGES = re.compile(
    r"DistributedDataParallel\(|\bDDP\(|Accelerator\(|FullyShardedDataParallel\(|\bFSDP\(|fully_shard\(|deepspeed\.init"
)
_BY_HAND = re.compile(
    r"\.grad\b.*all_reduce|all_reduce\([^)]*\.grad|backward_passes|ReduceOp\.SUM.*grad|register_comm_hook"
)
_OF_ALL = re.compile(r"\.(?:gather|gather_for_metrics|reduce|all_reduce|all_gather)\(")
_MEAN = re.compile(r"\bAVG\b|reduction=['\"]mean|all_reduce\([^()]*['\"]mean|\.mean\(\)")


def divided_by_ranks_elsewhere(script: Script, project: Project) -> Iterator[Said]:
    if "compute_loss" in script.source:
        for _, method in methods(script, "compute_loss", OF_TRAINERS):
            yield from _returned(script, project, method, "`Trainer` averages")
    if "training_step" in script.source and "ightning" in script.source:
        for _, method in methods(script, "training_step", re.compile(r"LightningModule")):
            yield from _returned(script, project, method, "Lightning averages")
    near = connected(script, project)
    if "backward(" not in script.source or not any(_AVERAGES.search(one.source) for one in near):
        return
    if any(_BY_HAND.search(one.source) for one in near) or re.search(r"all_reduce\(\s*loss", script.source):
        return
    for room in (script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef))):
        for node in own_nodes(room):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
                loss = node.args[0] if node.args else node.func.value
                found = _divided(factors_of(loss, room, script, imported(script, project)))
                if found is not None and (found.script is not script or not _RANKS.fullmatch(ast.unparse(found.by))):
                    yield _finding(found, "DDP, FSDP and DeepSpeed average", script, node)
                    return


def _returned(script: Script, project: Project, method: ast.FunctionDef, who: str) -> Iterator[Said]:
    if not on_several(script, project):
        return
    for value in returned(method):
        found = _divided(factors_of(value, method, script, imported(script, project)))
        if found is not None:
            yield _finding(found, who, script, value)
            return


def _divided(factors: list[Factor]) -> Factor | None:
    """The division by the ranks, or by a sum over them, that nothing takes back."""
    if any(not one.divides and _RANKS.fullmatch(ast.unparse(one.by)) for one in factors):
        return None
    return next(
        (one for one in factors if one.divides and (_RANKS.fullmatch(ast.unparse(one.by)) or _is_of_all(one))), None
    )


def _is_of_all(factor: Factor) -> bool:
    """A count that was added up over the ranks in the same function: `all_reduce(tokens)`, or a call that returns it."""
    by = factor.by
    while (
        isinstance(by, ast.Call)
        and isinstance(by.func, ast.Attribute)
        and by.func.attr in ("clamp", "float", "item", "to")
    ):
        by = by.func.value
    if not isinstance(by, ast.Name):
        return False
    for node in own_nodes(factor.room):
        if getattr(node, "lineno", 0) > getattr(factor.node, "lineno", 0):
            continue
        if isinstance(node, ast.Call) and _adds_up(node, by.id):
            return True
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == by.id for one in node.targets):
            text = ast.unparse(node.value)
            if _OF_ALL.search(text) and not _MEAN.search(text) and not re.search(r"/|loss", text):
                return True
    return False


def _adds_up(call: ast.Call, name: str) -> bool:
    reduces = ast.unparse(call.func).rpartition(".")[2] == "all_reduce" and bool(call.args)
    return reduces and ast.unparse(call.args[0]) == name and not _MEAN.search(ast.unparse(call))


def _finding(found: Factor, who: str, script: Script, used: ast.AST) -> Finding:
    by = ast.unparse(found.by)
    ranks = bool(_RANKS.fullmatch(by))
    how = f"the number of ranks (`{by}`)" if ranks else f"`{by}`, which is counted over all ranks,"
    return Finding(
        f"The loss is divided by {how} and gradients are averaged over the ranks as well: they come out too small by the"
        " number of ranks.",
        place=place_of(found.script, found.node),
        evidence=Evidence(Level.TEXT, {"divided by": by}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take the division out: {who} already."
            if ranks
            else f"Multiply by the number of ranks as well: {who} over them.",
            accuracy="The updates that were meant; the learning rate may have been tuned to the wrong ones.",
            measure="Compare the gradient's norm on one and on two ranks.",
        ),
        also=(place_of(script, used),),
    )
