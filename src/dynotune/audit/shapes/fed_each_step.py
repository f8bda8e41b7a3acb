"""An object of the project's own is fed the loss at every step (`meter.update(loss)`), and reads it at once."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import connected

_GIVEN = re.compile(r"(?<![\w.\"'\[])(?:\w+\.)*\w*(?:loss|logits)\b(?![\w(\[=]|\.item\()", re.IGNORECASE)
_READS = frozenset({"item", "tolist", "cpu", "numpy"})


def read_where_it_is_fed(script: Script, project: Project) -> Iterator[tuple[Script, Sequence[Call]]]:
    """The reads of what a loop hands over, by the file that they stand in."""
    seen: set[tuple[str, str]] = set()
    program = connected(script, project)
    for loop in loops(script):
        for call in loop.calls:
            method = call.name.rpartition(".")[2]
            if not call.each_step or not re.fullmatch(r"(?:self\.)?\w+", call.on) or not _hands_over(script, call):
                continue
            owners = [(one, node) for one in program for node in _classes(one) if _method(node, method) is not None]
            if len(owners) != 1 or (owners[0][0].file, owners[0][1].name) in seen:
                continue  # which of them it is, is not told
            other, node = owners[0]
            seen.add((other.file, node.name))
            reads = list(_reads(other, node, method))
            if reads:
                yield other, reads


def _hands_over(script: Script, call: Call) -> bool:
    text = text_at(script, call.place)
    return bool(_GIVEN.search(text[len(call.on) :].partition("(")[2])) and not _is_number(script, text)


def _is_number(script: Script, text: str) -> bool:
    """The name that is handed over is given a number of Python before."""
    names = {found[0].rpartition(".")[2] for found in _GIVEN.finditer(text)}
    return any(re.search(rf"\b{re.escape(one)}\s*=[^=\n]*(?:\.item\(|float\()", script.source) for one in names)


def _classes(script: Script) -> Iterator[ast.ClassDef]:
    """Of no module of PyTorch, whose calls are another matter."""
    for node in script.tree.body:
        if isinstance(node, ast.ClassDef) and not any("Module" in ast.unparse(base) for base in node.bases):
            yield node


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def _reads(script: Script, node: ast.ClassDef, method: str) -> Iterator[Call]:
    """Under no condition of the method, of what it is given."""
    held = _method(node, method)
    given = {one.arg for one in held.args.args[1:]} if held is not None else set()
    for call in script.calls:
        around = [(one.kind, one.name) for one in call.around if one.kind != "with"]
        if around != [("class", node.name), ("function", method)]:
            continue
        text = text_at(script, call.place)
        name = call.name.rpartition(".")[2]
        of = re.match(r"\w+", call.on if name in _READS else text.partition("(")[2])
        if of is not None and of[0] in given and (name in _READS or call.name == "float"):
            yield call
