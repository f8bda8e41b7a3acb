"""Every chain of keys by which scripts read a configuration, followed through short names and functions."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.script import Script

Chain = tuple[str, ...]

CALLS_THAT_SHOW = frozenset({"to_yaml", "print", "pprint", "save", "info"})
"""Calls that show or keep a configuration, and do nothing by it."""

_KEPT_BY = frozenset({"init", "log_hyperparams", "log_params", "update", "init_trackers", *CALLS_THAT_SHOW})
"""Calls that get all options for a record of the run."""


@dataclass(frozen=True)
class Holds:
    """In this function, or file, a name means what stands in the configuration under `at`."""

    function: ast.FunctionDef | ast.Module
    name: str
    at: Chain = ()


def started_by_hydra(script: Script) -> Iterator[ast.FunctionDef]:
    """Functions under `@hydra.main` that take the configuration."""
    for node in ast.walk(script.tree):
        marked = isinstance(node, ast.FunctionDef) and any(
            "hydra.main" in ast.unparse(one) for one in node.decorator_list
        )
        if isinstance(node, ast.FunctionDef) and marked and node.args.args:
            yield node


def chains_read(scripts: Sequence[Script], loaded: Sequence[Holds] = ()) -> list[Chain] | None:
    """A chain that ends at a mapping reads all of it. None: the configuration goes where it cannot be followed. `loaded`:
    names that have it at first, where it is not Hydra that gives it."""
    above = {
        child: node for script in scripts for node in ast.walk(script.tree) for child in ast.iter_child_nodes(node)
    }
    once = _defined_once(scripts)
    pending = [Holds(node, node.args.args[0].arg, ()) for script in scripts for node in started_by_hydra(script)]
    pending += loaded
    seen: set[Holds] = set()
    found: list[Chain] = []
    while pending:
        held = pending.pop()
        if held in seen:
            continue
        seen.add(held)
        for node in _uses(held, above):
            chain, here = _chain(node, above)
            whole = (*held.at, *chain)
            further = _given_on(here, held.function, whole, bool(chain), above, once)
            if further is not None:
                pending.append(further)
            elif whole:
                found.append(whole)
            elif not _is_shown(here, above):
                return None
    return found


def _uses(held: Holds, above: Mapping[ast.AST, ast.AST]) -> Iterator[ast.Name]:
    for node in ast.walk(held.function):
        if not isinstance(node, ast.Name) or node.id != held.name or not isinstance(node.ctx, ast.Load):
            continue
        here: ast.AST = node
        while here is not held.function:
            here = above[here]
            if here is held.function or not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if held.name in {one.arg for one in ast.walk(here.args) if isinstance(one, ast.arg)}:
                break  # another's argument of the same name
        else:
            yield node


def _chain(node: ast.Name, above: Mapping[ast.AST, ast.AST]) -> tuple[Chain, ast.AST]:
    """The keys behind a name (`.lr`, `["lr"]`, `.get("lr")`), and the whole expression."""
    chain: list[str] = []
    here: ast.AST = node
    while True:
        parent = above[here]
        if isinstance(parent, ast.Attribute):
            call = above[parent]
            if parent.attr == "get" and isinstance(call, ast.Call) and call.func is parent and _is_key(call.args[:1]):
                chain.append(call.args[0].value)  # type: ignore[attr-defined]
                here = call
                continue
            chain.append(parent.attr)
        elif isinstance(parent, ast.Subscript) and parent.value is here and _is_key([parent.slice]):
            chain.append(parent.slice.value)  # type: ignore[attr-defined]
        else:
            return tuple(chain), here
        here = parent


def _is_key(nodes: Sequence[ast.expr]) -> bool:
    return bool(nodes) and isinstance(nodes[0], ast.Constant) and isinstance(nodes[0].value, str)


def _given_on(
    here: ast.AST,
    function: ast.FunctionDef | ast.Module,
    whole: Chain,
    a_part: bool,
    above: Mapping[ast.AST, ast.AST],
    once: Mapping[str, ast.FunctionDef],
) -> Holds | None:
    """What else means the expression: a variable given only this, or a parameter of the project's own function."""
    parent = above[here]
    if isinstance(parent, ast.Assign) and a_part and len(parent.targets) == 1:
        target = parent.targets[0]
        if isinstance(target, ast.Name) and _given_once(target.id, function):
            return Holds(function, target.id, whole)
        return None
    call = above[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or here is call.func or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    by_name = isinstance(call.func, ast.Name)
    if not by_name and (a_part or not isinstance(call.func, ast.Attribute)):
        return None
    taker = once.get(call.func.id if isinstance(call.func, ast.Name) else call.func.attr)  # type: ignore[attr-defined]
    if taker is None:
        return None
    takes = [one.arg for one in (*taker.args.posonlyargs, *taker.args.args)]
    if isinstance(parent, ast.keyword):
        takes += [one.arg for one in taker.args.kwonlyargs]
        return Holds(taker, parent.arg, whole) if parent.arg in takes else None
    at = call.args.index(here)  # type: ignore[arg-type]
    return Holds(taker, takes[at], whole) if at < len(takes) else None


def _given_once(name: str, function: ast.FunctionDef | ast.Module) -> bool:
    inside = list(ast.walk(function))
    stores = [
        one for one in inside if isinstance(one, ast.Name) and one.id == name and not isinstance(one.ctx, ast.Load)
    ]
    return len(stores) == 1 and not any(isinstance(one, ast.arg) and one.arg == name for one in inside)


def _defined_once(scripts: Sequence[Script]) -> Mapping[str, ast.FunctionDef]:
    """Functions of the project by names that mean no other; none of classes, whose first argument is another."""
    found: dict[str, list[ast.FunctionDef]] = {}
    methods = set()
    for script in scripts:
        for node in ast.walk(script.tree):
            if isinstance(node, ast.ClassDef):
                methods |= {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1 and name not in methods}


def _is_shown(here: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """It is printed, kept, or goes into a record of the run as plain values."""
    call = _call_of(here, above)
    if call is None:
        parent = above[here]
        return isinstance(parent, ast.Compare) and _is_key([parent.left])  # `"lr" in cfg`
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if last == "to_container":
        outer = _call_of(call, above)
        last = "" if outer is None else outer.func.attr if isinstance(outer.func, ast.Attribute) else ""
        return last in _KEPT_BY
    return last in CALLS_THAT_SHOW


def _call_of(here: ast.AST, above: Mapping[ast.AST, ast.AST]) -> ast.Call | None:
    """The call that gets it as an argument."""
    parent = above[here]
    call = above[parent] if isinstance(parent, ast.keyword) else parent
    return call if isinstance(call, ast.Call) and here is not call.func else None
