"""Parameters of a function that a command line starts, and fields of a class that it fills, which nothing reads."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, leads_out, together
from dynotune.audit.finding import Said
from dynotune.audit.place import Place
from dynotune.audit.shapes.flags_that_nothing_reads import ADMITTED, LAUNCHERS, TRAINS, WHOLE, finding_of, goes_out
from dynotune.audit.shapes.swallowed_by_a_function import SAID_ELSEWHERE, shown_in, started_functions

_PARSED = re.compile(
    r"(?:HfArgumentParser|tyro\.cli|simple_parsing\.parse|draccus\.parse|pyrallis\.parse|(?<![.\w])parse)"
    r"\(\s*[\[(]?([\w, ]+)[\])]?"
    r"|add_arguments\((\w+),"
)
"""How a class of options gets its values from a command."""

_ACTS = re.compile(r"\bcallback\s*=|is_eager|expose_value|hidden\s*=\s*True")
"""An option that does something itself, or is kept for old commands."""

MOST = 3
"""Names up to which it is said: of more, something reads them in a way that was not followed."""


def options_that_nothing_reads(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        near = together(script, project)
        if leads_out(near, project) or not any(TRAINS.search(code(one)) for one in near):
            continue
        given = {name for launch in project.launches if launch.script == script.file for name in launch.flags}
        found = [one for one in _of_functions(script) if one[0] not in given]
        if 0 < len(found) <= MOST:
            yield finding_of(found)
    yield from _of_classes(project)


def _of_functions(script: Script) -> Iterator[tuple[str, Place]]:
    if "locals()" in script.source:
        return
    for function in started_functions(script):
        if any(_ACTS.search(ast.unparse(one)) for one in (*function.decorator_list, function.args)):
            continue
        shown = shown_in(function)
        used = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and id(one) not in shown}
        for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            silent = one.arg.startswith("_") or one.arg in SAID_ELSEWHERE | LAUNCHERS | {"ctx", "self", "cls"}
            if one.arg not in used and not silent and not ADMITTED.search(_line(script, one.lineno)):
                yield one.arg, place_of(script, one)


def _of_classes(project: Project) -> Iterator[Said]:
    """Fields of the project's own dataclasses that a parser fills from the command."""
    sources = [code(one) for one in project.scripts]
    if any(WHOLE.search(one) for one in sources):
        return
    text = "\n".join(sources)
    names = {name for found in _PARSED.finditer(text) for name in re.findall(r"\w+", found[1] or found[2] or "")}
    given = {name for launch in project.launches for name in launch.flags}
    given |= {str(key) for config in project.configs for key in config.values}
    for script in project.scripts:
        near = together(script, project)
        if leads_out(near, project) or not any(TRAINS.search(code(one)) for one in near):
            continue
        for node in script.tree.body:
            plain = isinstance(node, ast.ClassDef) and node.name in names and not node.bases
            if not plain or not isinstance(node, ast.ClassDef) or goes_out(near, project):
                continue
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
            found = [
                (one.target.id, place_of(script, one))
                for one in fields
                if isinstance(one.target, ast.Name)
                and one.target.id not in given | LAUNCHERS | SAID_ELSEWHERE
                and not re.search(rf"\.{one.target.id}\b|['\"]{one.target.id}['\"]|\b{one.target.id}\s*=(?!=)", text)
                and not ADMITTED.search(ast.unparse(one))
            ]
            if 0 < len(found) <= MOST:
                yield finding_of(found)


def _line(script: Script, number: int) -> str:
    return script.source.split("\n")[number - 1]
