"""The group is asked for its ranks above the call that makes it: in one function, or on a program's way through several."""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.group_of_processes import ASKS, STARTS, function_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake


def asked_too_early(script: Script) -> Iterator[Said]:
    starts = [call for call in script.calls if STARTS.search(call.name)]
    guarded = re.search(r"is_initialized\(|is_available\(\s*\) and dist", script.source)
    for call in script.calls:
        if call.name not in ASKS or guarded:
            continue
        # What stands outside of functions runs first, whatever its line.
        later = [
            start
            for start in starts
            if (function_of(start) == function_of(call) and start.place.line > call.place.line)
            or (not function_of(call) and function_of(start))
        ]
        earlier = [start for start in starts if start.place.line < call.place.line]
        if not later or earlier or any("init" in one.name.lower() for one in _before(script, call)):
            continue
        yield Finding(
            f"`{call.name.rpartition('.')[2]}()` is called before `{later[0].name.rpartition('.')[2]}` (line"
            f" {later[0].place.line}) has made the group: it raises.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"asked": call.place.line, "made": later[0].place.line}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.SAFE, "Make the group first."),
            also=(later[0].place,),
        )
        return


def asked_on_the_way(script: Script, project: Project) -> Iterator[Said]:
    """In what a program does, in its order, through its functions and files: a question that stands before the call that
    makes the group."""
    if "__main__" not in script.source and not any(launch.script == script.file for launch in project.launches):
        return
    asks = [*(one.rpartition(".")[2] for one in ASKS), _SAMPLER]
    if not any(ask in one.source for ask in asks for one in connected(script, project)):
        return
    happens = list(itertools.islice(_happens(script, script.tree.body, project, 0), 400))
    kinds = [kind for kind, *_ in happens]
    if "ask" not in kinds or "start" not in kinds or kinds.index("ask") > kinds.index("start"):
        return
    _, of, asked = happens[kinds.index("ask")]
    _, beside, made = happens[kinds.index("start")]
    yield Finding(
        f"`{ast.unparse(asked.func)}()` {_needs(asked)}is called before `{ast.unparse(made.func)}`"
        f" (`{beside.file}`, line {made.lineno})"
        " has made the group: it raises.",
        place=place_of(of, asked),
        evidence=Evidence(Level.TEXT, {"asked": f"{of.file}:{asked.lineno}", "made": f"{beside.file}:{made.lineno}"}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.SAFE, "Make the group first."),
        also=(place_of(beside, made),),
    )


def _needs(asked: ast.Call) -> str:
    return "asks for the number of ranks and " if ast.unparse(asked.func).endswith(_SAMPLER) else ""


_SAMPLER = "DistributedSampler"
_RUNNERS = frozenset({"run", "Fire", "cli", "entrypoint"})
"""Of libraries of command lines, which call what they are given: `typer.run(main)`, `fire.Fire(main)`."""


def _asks(call: ast.Call) -> bool:
    """A sampler that is not told how many ranks there are, and which it is for."""
    return len(call.args) < 3 and not {"num_replicas", "rank", None} & {one.arg for one in call.keywords}


_GUARDS = re.compile(r"is_initialized|is_available|environ|distributed|ddp|world", re.IGNORECASE)
_PERHAPS = re.compile(r"init|setup|start|dist|launch|spawn", re.IGNORECASE)
"""What a function that was not read is called if it may make the group."""


def _happens(
    script: Script, body: Sequence[ast.AST], project: Project, depth: int
) -> Iterator[tuple[str, Script, ast.Call]]:
    """Questions (`ask`) and calls that make, or may make, the group (`start`), as they are reached. What stands under a
    condition about processes is left out."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.If | ast.IfExp | ast.Try) and _GUARDS.search(
            ast.unparse(node.test) if not isinstance(node, ast.Try) else "ddp"
        ):
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
                return  # `if not dist.is_initialized(): return 1`, and the rest only where there is a group
            continue
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            inner = [*node.args, *(keyword.value for keyword in node.keywords)]
        yield from _happens(script, inner, project, depth)
        if not isinstance(node, ast.Call):
            continue
        name = next((call.name for call in script.calls if _is_at(call, node)), "")
        last = name.rpartition(".")[2]
        if name in ASKS or (last == _SAMPLER and _asks(node)):
            yield "ask", script, node
        elif STARTS.search(name):
            yield "start", script, node
        else:
            handed = node.args[0].id if last in _RUNNERS and node.args and isinstance(node.args[0], ast.Name) else last
            defined = _definition(handed, script, project) if depth < 4 else None
            if defined is not None:
                yield from _happens(defined[0], defined[1].body, project, depth + 1)
            elif _PERHAPS.search(last):
                yield "start", script, node


def _is_at(call: Call, node: ast.Call) -> bool:
    return (call.place.line, call.place.end_line) == (node.lineno, node.end_lineno) and (
        call.place.column,
        call.place.end_column,
    ) == (node.col_offset + 1, (node.end_col_offset or 0) + 1)


def _definition(name: str, script: Script, project: Project) -> tuple[Script, ast.FunctionDef] | None:
    """The only function of that name in the file or in those that it imports; of a class, what makes its objects."""
    for one in (script, *imported(script, project)):
        found = [
            node for node in one.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if len(found) == 1 and isinstance(found[0], ast.ClassDef):
            found = [node for node in found[0].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        if len(found) == 1 and isinstance(found[0], ast.FunctionDef):
            return one, found[0]
    return None


def _before(script: Script, call: Call) -> list[Call]:
    """Calls of the same function above it, which may make the group."""
    return [one for one in script.calls if function_of(one) == function_of(call) and one.place.line < call.place.line]
