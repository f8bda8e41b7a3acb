"""A file reads a launcher's variable when it is loaded, and a program that no launcher starts loads it: it stops there."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import reached
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_VARIABLES = frozenset({"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
_COMMAND = re.compile(
    r"^[\s$>`]*(?P<before>(?:[A-Z_]+=\S*\s+)*)python3?\s+(?:-u\s+)?(?P<script>[\w./-]+\.py)\b", re.MULTILINE
)
_FUNCTIONS: tuple[type[ast.AST], ...] = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CONDITIONS: tuple[type[ast.AST], ...] = (ast.If, ast.Try, ast.With, ast.For, ast.While)
_ONE_IS_RIGHT = re.compile(r"\bworld(?:_?size)?\b\s*(?:>|==|!=)\s*1\b", re.IGNORECASE)
"""Of a program that goes without a group where it is one process."""

_ENDS: tuple[type[ast.AST], ...] = (ast.Return, ast.Raise)
_APART: tuple[type[ast.AST], ...] = (*_FUNCTIONS, ast.IfExp, ast.BoolOp)
_ASKS = re.compile(
    r"\bin (?:os\.)?environ\b|(?:environ\.get|getenv)\(\s*[\"'](?:WORLD_SIZE|RANK|LOCAL_RANK)"
    r"|is_torchelastic_launched|environ\.setdefault"
)
"""What asks whether a launcher has started the program, or gives the variables itself."""


def rank_variable_of_no_launcher(script: Script, project: Project) -> Iterator[Said]:
    node = _read_at_import(script)
    if node is None:
        yield from _read_by_main(script, project)
        return
    variable = ast.unparse(node.slice).strip("'\"")
    for started, place in _started_alone(project, variable):
        loaded = {one.file for one in reached(started, project)}
        # A document's `python train.py` may be short for the launcher's command; a target's is what runs.
        launched = place.file in project.documents and any(
            one.launcher and one.script == started.file for one in project.launches
        )
        if script.file not in loaded or _sets(started, variable) or (started is script and launched):
            continue
        yield _finding(script, node, started, place, f"when `{script.file}` is loaded")
        return


def _finding(script: Script, node: ast.Subscript, started: Script, place: Place, when: str) -> Finding:
    variable = ast.unparse(node.slice).strip("'\"")
    return Finding(
        f"`{variable}` is read {when}, and "
        + ("it" if started is script else f"`{started.file}`, which loads it,")
        + " is started without a launcher: there is no such variable, and it stops with a KeyError.",
        place=place_of(script, node),
        also=(place, Place(started.file, 1)),
        evidence=Evidence(Level.TEXT, {"variable": variable, "started alone": started.file}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.SAFE, _instead(script, started, variable), effort=Effort.LINE),
    )


def _read_by_main(script: Script, project: Project) -> Iterator[Said]:
    """The function that a program consists of reads it first of all, and a command starts the program by `python` alone."""
    if _ASKS.search(script.source):
        return  # it knows that there may be none
    node = next(_always_read(script), None)
    variable = ast.unparse(node.slice).strip("'\"") if node is not None else ""
    for started, place in _started_alone(project, variable) if node is not None else ():
        if (
            node is not None
            and started is script
            and place.file not in project.documents
            and not _sets(script, variable)
        ):
            yield _finding(script, node, script, place, f"whenever `{script.file}` runs")
            return


def _always_read(script: Script) -> Iterator[ast.Subscript]:
    """In functions that run under no condition: called where the file is run, or by one of these."""
    functions = {node.name: node for node in script.tree.body if isinstance(node, ast.FunctionDef)}
    waiting: list[ast.stmt] = []
    for top in script.tree.body:
        if isinstance(top, ast.If) and "__main__" in ast.unparse(top.test):
            waiting += top.body
        elif not isinstance(top, (*_CONDITIONS, *_FUNCTIONS, ast.ClassDef)):
            waiting.append(top)
    for statement in waiting:
        if isinstance(statement, _CONDITIONS):
            continue
        for node in own_nodes(statement, _APART):
            if (read := _read(node)) is not None:
                yield read
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called = functions.pop(node.func.id, None)
                waiting += _until_it_may_end(called.body) if called is not None else []


def _until_it_may_end(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a function up to one by which it may have ended."""
    for statement in body:
        yield statement
        if isinstance(statement, _CONDITIONS) and any(isinstance(one, _ENDS) for one in ast.walk(statement)):
            return


def _read_at_import(script: Script) -> ast.Subscript | None:
    """`os.environ["WORLD_SIZE"]` outside of functions, under no condition and in no `try`."""
    if not any(name in script.source for name in _VARIABLES):
        return None
    for top in script.tree.body:
        if isinstance(top, (ast.If, ast.Try, ast.With, *_FUNCTIONS)):
            continue
        for node in own_nodes(top, _FUNCTIONS):
            if (read := _read(node)) is not None:
                return read
    return None


def _read(node: ast.AST) -> ast.Subscript | None:
    is_variable = (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) in ("os.environ", "environ")
        and ast.unparse(node.slice).strip("'\"") in _VARIABLES
    )
    return node if is_variable and isinstance(node, ast.Subscript) else None


def _started_alone(project: Project, variable: str) -> Iterator[tuple[Script, Place]]:
    """Programs that a document or a shell script starts by `python` alone."""
    scripts = {one.file: one for one in project.scripts}
    for launch in project.launches:
        set_there = variable in launch.variables or variable in project.texts.get(launch.file, "")
        if not launch.launcher and launch.script in scripts and not set_there:
            yield scripts[launch.script], launch.place
    for file, text in project.documents.items():
        for found in _COMMAND.finditer(text):
            name = found["script"].removeprefix("./")
            if name in scripts and variable not in found["before"]:
                yield scripts[name], Place(file, text.count("\n", 0, found.start("script")) + 1)


def _sets(script: Script, variable: str) -> bool:
    return re.search(rf"environ(?:\[|\.setdefault\()['\"]{variable}['\"]\]?\s*[=,]", script.source) is not None


def _instead(script: Script, started: Script, variable: str) -> str:
    """A program that makes a group of processes needs a launcher; another one a default, which for a rank is 0."""
    if "init_process_group(" in script.source and not _ONE_IS_RIGHT.search(script.source):
        return f"Start it with `torchrun --nproc_per_node N {started.file}`, which sets it."
    alone = 1 if "SIZE" in variable else 0
    return f'Read it where the processes use it, or with a default: `int(os.environ.get("{variable}", {alone}))`.'
