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
from dynotune.audit.read.python.bindings import dotted
from dynotune.audit.shapes.flags_that_nothing_reads import ADMITTED, LAUNCHERS, TRAINS, WHOLE, finding_of, goes_out
from dynotune.audit.shapes.swallowed_by_a_function import SAID_ELSEWHERE, started_functions, unused_parameters

_PARSED = re.compile(
    r"(?:HfArgumentParser|tyro\.cli|simple_parsing\.parse|draccus\.parse|pyrallis\.parse|(?<![.\w])parse)"
    r"\(\s*[\[(]?([\w, ]+)[\])]?"
    r"|add_arguments\((\w+),"
)
"""How a class of options gets its values from a command."""

_ACTS = re.compile(r"\bcallback\s*=|is_eager|expose_value|hidden\s*=\s*True")
"""An option that does something itself, or is kept for old commands."""

_ALL_AT_ONCE = re.compile(r"\.params\b|get_current_context|\bvars\(\)|currentframe|getargvalues")
"""Ways to parameters that do not name them."""

_PARSERS = frozenset({"simple_parsing", "draccus", "pyrallis"})
_READ_NOTHING = frozenset({"click", "rich_click", "typer", "torch"})
"""Libraries whose decorators hand a function what it asks for, and look at none of it."""

MOST = 3
"""Names up to which it is said: of more, something reads them in a way that was not followed."""


def options_that_nothing_reads(project: Project) -> Iterator[Said]:
    at_once = any(_ALL_AT_ONCE.search(code(one)) for one in project.scripts)
    for script in project.scripts:
        near = together(script, project)
        if at_once or leads_out(near, project) or not any(TRAINS.search(code(one)) for one in near):
            continue
        given = {name for launch in project.launches if launch.script == script.file for name in launch.flags}
        found = [one for one in _of_functions(script) if one[0] not in given]
        if 0 < len(found) <= MOST:
            yield finding_of([one[:2] for one in found], {name for name, _, shown in found if shown})
    yield from _of_classes(project)


def _of_functions(script: Script) -> Iterator[tuple[str, Place, bool]]:
    """Parameters that nothing reads, and whether they are shown."""
    if "locals()" in script.source:
        return
    for function in started_functions(script):
        if any(_ACTS.search(ast.unparse(one)) for one in (*function.decorator_list, function.args)):
            continue
        if not all(_reads_nothing(one, script) for one in function.decorator_list):
            continue
        # An unused one stands only where it is shown.
        shown = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
        for one in unused_parameters(function):
            silent = one.arg.startswith("_") or one.arg in SAID_ELSEWHERE | LAUNCHERS | {"ctx", "self", "cls"}
            if not silent and not _admitted(one.arg, script, function, one):
                yield one.arg, place_of(script, one), one.arg in shown


def _reads_nothing(decorator: ast.expr, script: Script) -> bool:
    """A decorator of click's or typer's, or of an app of theirs; another may read what it passes on."""
    name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
    root = script.imports.get(name.split(".")[0], "").split(".")[0]
    of_an_app = not root and re.search(r"\w\.(?:command|callback|group|option|argument)$", name) is not None
    return root in _READ_NOTHING or of_an_app


def _admitted(name: str, script: Script, node: ast.FunctionDef | ast.ClassDef, part: ast.arg | ast.AnnAssign) -> bool:
    """The line, the decorator of the option, its default or a line of the description says that it does nothing."""
    word = re.compile(rf"(?<!\w){name.replace('_', '[_-]')}(?!\w)")
    texts = [_line(script, number) for number in range(part.lineno, (part.end_lineno or part.lineno) + 1)]
    texts += [one for each in node.decorator_list if word.search(one := ast.unparse(each))]
    described = (ast.get_docstring(node) or "").split("\n")
    texts += [" ".join(described[at : at + 2]) for at, line in enumerate(described) if word.search(line)]
    if isinstance(node, ast.FunctionDef):
        every = [*node.args.posonlyargs, *node.args.args]
        defaults = dict(zip([one.arg for one in every][::-1], node.args.defaults[::-1], strict=False))
        defaults |= {
            one.arg: held for one, held in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if held
        }
        texts += [ast.unparse(defaults[name])] if name in defaults else []
    return any(ADMITTED.search(one) for one in texts)


def _of_classes(project: Project) -> Iterator[Said]:
    """Fields of the project's own dataclasses that a parser fills from the command."""
    sources = [code(one) for one in project.scripts]
    if any(WHOLE.search(one) for one in sources):
        return
    text = "\n".join(sources)
    names = {
        name
        for script, source in zip(project.scripts, sources, strict=True)
        for found in _PARSED.finditer(source)
        if not found[0].startswith("parse(") or script.imports.get("parse", "").split(".")[0] in _PARSERS
        for name in re.findall(r"\w+", found[1] or found[2] or "")
    }
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
                and not _admitted(one.target.id, script, node, one)
            ]
            if 0 < len(found) <= MOST:
                yield finding_of(found)


def _line(script: Script, number: int) -> str:
    return script.source.split("\n")[number - 1]
