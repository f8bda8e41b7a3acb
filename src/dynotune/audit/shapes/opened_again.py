"""Whole conversations that are rendered with the beginning of another answer behind them, and trained on."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_COLUMN = re.compile(r"\w+(?:\.get\(|\[)['\"](messages|conversations?|chat|dialogu?e?|convo)['\"][\])]")
_TRAINS = re.compile(r"SFTTrainer\(|\bTrainer\(|\.backward\(")
_OTHER_COLUMNS = re.compile(
    r"\[['\"](prompt|question|answer|completion|response|output|chosen|rejected|solution|target|label|summary)['\"]\]"
)
_ANSWERS = ("assistant", "gpt", "model")

Above = Mapping[ast.AST, ast.AST]


def opened_again(script: Script, project: Project) -> Iterator[Said]:
    if "add_generation_prompt" not in script.source or not any(
        _TRAINS.search(code(one)) for one in together(script, project)
    ):
        return
    above = {child: node for node in ast.walk(script.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Call) or not _opens(node):
            continue
        room = _room(node, above)
        told = (
            node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "conversation"), None)
        )
        if told is None or _is_added_to(node, above):
            continue
        if _ends_with_answer(told, room) or (_is_whole(told, room) and _is_row(node, room, script)):
            yield _finding(script, node)
            return


def _opens(node: ast.Call) -> bool:
    words = {word.arg: ast.unparse(word.value) for word in node.keywords}
    return ast.unparse(node.func).endswith("apply_chat_template") and words.get("add_generation_prompt") == "True"


def _room(node: ast.AST, above: Above) -> ast.AST:
    """The function or lambda that it stands in, else the file."""
    while node in above and not isinstance(node, ast.FunctionDef | ast.Lambda | ast.Module):
        node = above[node]
    return node


def _is_added_to(node: ast.AST, above: Above) -> bool:
    """Something stands behind it in the same text, as an answer may."""
    while (over := above.get(node)) is not None and not isinstance(over, ast.stmt):
        if isinstance(over, ast.BinOp | ast.JoinedStr | ast.Slice):
            return True
        if isinstance(over, ast.Call) and node is not over.func and not isinstance(over.func, ast.Attribute | ast.Name):
            return True
        if isinstance(over, ast.Call) and re.search(r"len$|print$|generate$|decode$", ast.unparse(over.func)):
            return True
        node = over
    return isinstance(over, ast.AugAssign)


def _ends_with_answer(told: ast.expr, room: ast.AST) -> bool:
    """A list of turns, written here, whose last one is the assistant's."""
    if isinstance(told, ast.Name):
        given = [
            one.value
            for one in own_nodes(room)
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == told.id
        ]
        touched = re.search(
            rf"\b{told.id}\.(append|extend|insert|pop)\(|\b{told.id}\s*\+=|\bdel {told.id}\b", ast.unparse(room)
        )
        if len(given) != 1 or touched:
            return False
        told = given[0]
    if isinstance(told, ast.BinOp):
        told = told.right
    if not isinstance(told, ast.List) or not told.elts or not isinstance(last := told.elts[-1], ast.Dict):
        return False
    roles = dict(zip(map(_text, last.keys), map(_text, last.values), strict=True))
    return roles.get("role") in _ANSWERS or roles.get("from") in _ANSWERS


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_whole(told: ast.expr, room: ast.AST) -> bool:
    """A column of whole conversations, or each one of a batch of them by a loop or a comprehension."""
    if _COLUMN.fullmatch(ast.unparse(told)):
        return True
    if not isinstance(told, ast.Name):
        return False
    for one in ast.walk(room):
        if (
            isinstance(one, ast.comprehension | ast.For)
            and isinstance(one.target, ast.Name)
            and one.target.id == told.id
        ):
            return bool(_COLUMN.fullmatch(ast.unparse(one.iter))) or _named(one.iter, room)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == told.id:
            return bool(_COLUMN.fullmatch(ast.unparse(one.value)))
    return False


def _named(iterated: ast.expr, room: ast.AST) -> bool:
    """A name that is given such a column."""
    return isinstance(iterated, ast.Name) and any(
        isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and one.targets[0].id == iterated.id
        and bool(_COLUMN.fullmatch(ast.unparse(one.value)))
        for one in own_nodes(room)
    )


def _is_row(node: ast.AST, room: ast.AST, script: Script) -> bool:
    """What is rendered becomes the text of a row, or its ids with nothing of another column."""
    if _OTHER_COLUMNS.search(ast.unparse(room)):
        return False
    fields = {"text", *re.findall(r"dataset_text_field\s*=\s*['\"](\w+)['\"]", script.source)}
    names = _carried(node, room)
    for one in ast.walk(room):
        for key, value in _items(one):
            inside = list(ast.walk(value))
            held = any(part is node or (isinstance(part, ast.Name) and part.id in names) for part in inside)
            if key in fields and held:
                return True
            if key in ("labels", "input_ids") and held and not any(isinstance(part, ast.BinOp) for part in inside):
                return "labels" in ast.unparse(room)
    return _is_formatting(room, script) and any(
        isinstance(one, ast.Return) and one.value is not None and _holds(one.value, node, names)
        for one in ast.walk(room)
    )


def _holds(value: ast.AST, node: ast.AST, names: set[str]) -> bool:
    return any(part is node or (isinstance(part, ast.Name) and part.id in names) for part in ast.walk(value))


def _is_formatting(room: ast.AST, script: Script) -> bool:
    name = room.name if isinstance(room, ast.FunctionDef) else ""
    return bool(name) and bool(re.search(rf"formatting_func\s*=\s*{name}\b", script.source))


def _carried(node: ast.AST, room: ast.AST) -> set[str]:
    """Names that hold it: given it, or lists to which it is appended."""
    names: set[str] = set()
    for one in [*own_nodes(room), *own_nodes(room)]:  # twice: `text = ...`, then `texts.append(text)`
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _holds(one.value, node, names):
            names.add(one.targets[0].id)
        func = one.func if isinstance(one, ast.Call) else None
        adds = isinstance(func, ast.Attribute) and func.attr in ("append", "extend")
        if adds and isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and _holds(one, node, names):
            names.add(func.value.id)
    return names


def _items(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        key = node.targets[0].slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, node.value


def _finding(script: Script, node: ast.Call) -> Finding:
    return Finding(
        "Whole conversations are rendered with `add_generation_prompt=True` and trained on: each row ends with"
        " the beginning of another answer, which the model learns to open and never to give.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"rendered": ast.unparse(node)[:80]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Render training rows with `add_generation_prompt=False`; it is for prompts.",
            effort=Effort.LINE,
            accuracy="Rows end where answers end.",
            measure="Print the last twenty characters of a row.",
        ),
    )
