"""Which calls run at every step: in loops that train, in what a trainer calls each step, and in their helpers."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dynotune.audit.read.python.module import FUNCTIONS, Module, Scope, Site

PER_STEP = frozenset({"compute_loss", "training_step", "get_batch_loss_metrics", "on_step_end", "on_substep_end"})
"""Methods that a trainer calls once a micro-batch or step."""

_ONE_RANK = re.compile(
    r"(is_|is_local_|^|\.|_)(main|master)_process|is_world_process_zero|is_master"
    r"|\b(local_|global_)?rank *(== *0|in [\[({] *-1, *0)"
    r"|\bget_(global_|local_)?rank\(\w*\) *== *0|\b(LOCAL_)?RANK['\"](, *['\"]?-?\d['\"]?)?[\])]+ *(== *0|in [\[({] *-1, *0)"
    r"|is_rank_?(0|zero)|\bis_main\b|^not (\w+\.)?(local_|global_)?rank$",
    re.IGNORECASE,
)
_OF_THE_RUN = re.compile(
    r"(\w+\.)*(args|cfg|config|conf|opts?|hparams)\.\w+|[\w.]+ is not None|(self\.)?use_\w+|[\w.]*(wandb|writer)\w*"
)
"""Parts of a condition that are the same at all steps."""


def _is_for_one_rank(test: str) -> bool:
    parts = test.split(" and ")
    of_ranks = [part for part in parts if _ONE_RANK.search(part)]
    return bool(of_ranks) and all(part in of_ranks or _OF_THE_RUN.fullmatch(part.strip("() ")) for part in parts)


_PASSES_OVER = re.compile(
    r"(?=.*(skip|resum|start|done|first|begin|offset|already|seen|restore|consumed|trained))(?=.*[<>=]=?)"
    r"|\bis None$|^not \w*(batch|rows|data|loss|inputs|labels|ids)\w*$|is_?(nan|inf|finite)\("
    r"|^len\(.*\)\s*(==\s*0|<\s*[12])\b|\b(rank|local_rank|global_rank)\b\s*(!=\s*0|>\s*0)"
    r"|^not .*(is_main_process|is_world_process_zero|is_master|is_rank_?(0|zero))",
    re.IGNORECASE,
)
"""Tests of an `if ...: continue` behind which nearly every step still comes: what a resumed run has seen, rows that are not
there, losses that are no number, all ranks but one."""

_OF_A_PARAMETER = re.compile(r"[\w.]+\.grad is not None|[\w.]+\.requires_grad")
"""What holds for the weights that are trained, at every step."""

_OPTIMIZER = re.compile(r"optim|\bopt\b|scaler|engine|accelerator", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stands:
    """A call and the steps. loop: the training loop or per-step function; each: under no condition in it."""

    loop: ast.AST
    each: bool


def trains(site: Site) -> bool:
    """Whether the call is a backward pass or an optimizer's step."""
    func = site.node.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in ("backward", "manual_backward"):
        return True
    return func.attr == "step" and bool(_OPTIMIZER.search(ast.unparse(func.value))) and not _is_scheduler(func.value)


def _is_scheduler(node: ast.expr) -> bool:
    return "sched" in ast.unparse(node).lower()


Always = Callable[[ast.expr, Scope], bool]
"""Whether a condition is known to hold at every step."""


def training(module: Module, always: Always = lambda test, scope: False) -> dict[ast.Call, Stands]:
    """Of every call that runs at each step or in some."""
    by_function: dict[Scope, list[Site]] = {}
    for site in module.sites:
        by_function.setdefault(_function(site.scope), []).append(site)
    steps = {scope for scope, sites in by_function.items() if any(trains(site) and not site.loops for site in sites)}
    stands: dict[ast.Call, Stands] = {}
    loops: set[ast.AST] = set()
    for site in module.sites:
        helper = any(scope in steps for scope in _callees(module, site))
        if site.loops and (trains(site) or helper):
            loops.add(site.loops[-1])
    followed: dict[Scope, ast.AST] = {}
    for site in module.sites:
        inner = next((loop for loop in reversed(site.loops) if loop in loops), None)
        if inner is None and _is_per_step(site.scope):
            inner = _function(site.scope).node
        if inner is None:
            continue
        stand = Stands(inner, _unconditional(module, site, inner, always))
        stands[site.node] = stand
        if stand.each:
            for scope in _callees(module, site):
                followed.setdefault(scope, inner)
    for scope, loop in followed.items():
        for site in by_function.get(scope, ()):
            stands.setdefault(site.node, Stands(loop, _unconditional(module, site, scope.node, always)))
    return stands


def _function(scope: Scope) -> Scope:
    """The innermost function (or the module) that the scope's code runs in."""
    while scope.is_class and scope.parent is not None:
        scope = scope.parent
    return scope


def _callees(module: Module, site: Site) -> Iterator[Scope]:
    """Functions of the file that the call runs: by a plain name, or by `self.name` in the same class."""
    func = site.node.func
    if isinstance(func, ast.Name):
        for binding in module.bound(func.id, site.scope):
            if binding.kind == "function" and binding.node is not None:
                yield module.scopes[binding.node]
    elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
        holder = site.scope
        while holder is not None and not holder.is_class:
            if holder.parent is None:
                return
            holder = holder.parent
        for binding in holder.bindings.get(func.attr, ()):
            if binding.kind == "function" and binding.node is not None:
                yield module.scopes[binding.node]


def _is_per_step(scope: Scope) -> bool:
    """`forward` of a module, `compute_loss` and the like of a trainer."""
    function = _function(scope)
    holder = function.parent
    if not isinstance(function.node, FUNCTIONS) or holder is None or not isinstance(holder.node, ast.ClassDef):
        return False
    return bool(holder.node.bases) and (function.node.name == "forward" or function.node.name in PER_STEP)


def _ends_the_loop(node: ast.If) -> bool:
    """What stands behind it runs at every turn that there is."""
    return isinstance(node.body[-1], ast.Break | ast.Raise | ast.Return) and not node.orelse


def _unconditional(module: Module, site: Site, within: ast.AST, always: Always) -> bool:
    """No branch lies between the loop (or function) and the call, but those for one rank, those that few steps leave the
    turn by, and for loops inside."""
    seen = isinstance(within, FUNCTIONS)
    for node, part in site.branches:
        if node is within:
            seen = True
        elif seen and part in ("body", "else", "rest", "except"):
            if part == "body" and isinstance(node, ast.If) and always(node.test, site.scope):
                continue
            test = module.source(node.test) if isinstance(node, ast.If | ast.IfExp) else ""
            if part == "body" and _OF_A_PARAMETER.fullmatch(test):
                continue
            if part == "rest" and isinstance(node, ast.If) and _ends_the_loop(node):
                continue
            if part in ("body", "else") and isinstance(node, ast.If | ast.IfExp) and _in_both(node, site.node):
                continue
            if part == "rest" and _PASSES_OVER.search(test) and "%" not in test and "sync" not in test:
                continue
            if part != "body" or not _is_for_one_rank(test) or "%" in test:
                return False
    return seen


_READS = frozenset({"item", "tolist", "cpu", "numpy"})


def _in_both(node: ast.If | ast.IfExp, call: ast.Call) -> bool:
    """A number is read in either branch: `loss.item() if mean is None else 0.9 * mean + 0.1 * loss.item()`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _READS:
        return False
    text = ast.unparse(call)
    return all(
        any(
            isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and ast.unparse(one) == text
            for top in (part if isinstance(part, list) else [part])
            if isinstance(
                top, ast.expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr
            )  # under no other condition
            for one in ast.walk(top)
        )
        for part in (node.body, node.orelse)
    )
