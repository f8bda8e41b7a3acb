"""Marks by which a script's own code looks for answers in rows: in the text, or as tokens among the ids."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.place import Place

_MASKS = re.compile(r"-100|IGNORE_INDEX|ignore_index|loss_mask|label_mask")
_IN_TEXT = frozenset({"find", "rfind", "index", "rindex", "split", "rsplit", "partition", "rpartition"})
_TOKENIZER = re.compile(r"(?:^|[._])(?:tok|tokenizer|tokeniser|processing_class)$", re.IGNORECASE)
_HEADING = re.compile(
    r"\s*#+(?![\s#]*(?:respon|answer|assist|output|repl|complet|human|instruct|input|user))", re.IGNORECASE
)
"""Of Markdown, as text has it."""

_NAMED = re.compile(r"head(?:er)?|mark|template|sep|start|answer|respon|assistant|prefix|needle|begin", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OwnMark:
    text: str
    place: Place
    """Where it is looked for."""

    named: Place | None = None
    """Where a name is given to it, if one is."""


def own_marks(script: Script) -> Iterator[OwnMark]:
    """Of scripts that mask labels: `HEADER = tok.encode("### Response:")`, `text.split("[/INST]")`."""
    if not _MASKS.search(script.source):
        return
    names = {
        node.targets[0].id: node.value
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    for name, value in names.items():
        call = value.value if isinstance(value, ast.Subscript | ast.Attribute) else value
        if not isinstance(call, ast.Call) or not _NAMED.search(name) or not call.args:
            continue
        asked = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "encode" else call.func
        if _TOKENIZER.search(ast.unparse(asked)) and (mark := _text(call.args[0], names)):
            yield OwnMark(mark, place_of(script, call), _home(call.args[0], names, script))
    masking = [
        one
        for one in ast.walk(script.tree)
        if isinstance(one, ast.FunctionDef) and re.search(rf"labels|{_MASKS.pattern}", ast.unparse(one))
    ]
    for node in (call for function in masking for call in own_nodes(function)):
        sought = _asked(node)
        if sought is not None and (mark := _text(sought, names)) and not _HEADING.match(mark):
            yield OwnMark(mark, place_of(script, node), _home(sought, names, script))


def _asked(node: ast.AST) -> ast.expr | None:
    """What is looked for in a text: by a method of it, by a pattern that `re.escape` makes, or by `in`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in _IN_TEXT:
            return node.args[0]
        if ast.unparse(node.func) == "re.escape":
            return node.args[0]
    return None


def _home(node: ast.expr, names: dict[str, ast.expr], script: Script) -> Place | None:
    return place_of(script, names[node.id]) if isinstance(node, ast.Name) and node.id in names else None


def _text(node: ast.expr, names: dict[str, ast.expr]) -> str:
    value = names.get(node.id) if isinstance(node, ast.Name) else node
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
