"""A file reads a launcher's variable when it is loaded, and a program that no launcher starts loads it: it stops there."""

import ast
import re
from collections.abc import Iterator

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


def rank_variable_of_no_launcher(script: Script, project: Project) -> Iterator[Said]:
    node = _read_at_import(script)
    if node is None:
        return
    variable = ast.unparse(node.slice).strip("'\"")
    for started, place in _started_alone(project, variable):
        loaded = {one.file for one in reached(started, project)}
        launched = any(one.launcher and one.script == started.file for one in project.launches)
        if script.file not in loaded or _sets(started, variable) or (started is script and launched):
            continue
        yield Finding(
            f"`{variable}` is read when `{script.file}` is loaded, and "
            + ("it" if started is script else f"`{started.file}`, which loads it,")
            + " is started without a launcher: there is no such variable, and it stops with a KeyError.",
            place=place_of(script, node),
            also=(place, Place(started.file, 1)),
            evidence=Evidence(Level.TEXT, {"variable": variable, "started alone": started.file}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.SAFE,
                _instead(script, started, variable),
                effort=Effort.LINE,
            ),
        )
        return


def _read_at_import(script: Script) -> ast.Subscript | None:
    """`os.environ["WORLD_SIZE"]` outside of functions, under no condition and in no `try`."""
    if not any(name in script.source for name in _VARIABLES):
        return None
    for top in script.tree.body:
        if isinstance(top, (ast.If, ast.Try, ast.With, *_FUNCTIONS)):
            continue
        for node in own_nodes(top, _FUNCTIONS):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and ast.unparse(node.value) in ("os.environ", "environ")
                and ast.unparse(node.slice).strip("'\"") in _VARIABLES
            ):
                return node
    return None


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
    if "init_process_group(" in script.source:
        return f"Start it with `torchrun --nproc_per_node N {started.file}`, which sets it."
    alone = 1 if "SIZE" in variable else 0
    return f'Read it where the processes use it, or with a default: `int(os.environ.get("{variable}", {alone}))`.'
