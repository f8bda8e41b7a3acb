"""Answers that are tokenised with special tokens and put behind the ids of their prompt: one more beginning."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake

_OF_A_ROW = re.compile(r"message|turn|conversation|convo|dialog|chat", re.IGNORECASE)
_TAKEN_OUT = re.compile(r"bos_token|\[1:\]|add_prefix|pop\(0\)")
"""A function that looks at the beginning by itself."""

_KEEPS = frozenset({"tolist", "squeeze", "copy", "clone", "to", "long", "flatten"})
_JOINS = ("torch.cat", "torch.concat", "torch.hstack", "np.concatenate", "np.hstack")
Given = Mapping[str, Sequence[ast.expr]]
Functions = Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]


def beginning_in_the_middle(script: Script, near: Sequence[Script]) -> Iterator[Finding]:
    """Once for a file. The models are known to have tokenizers that put a token in front."""
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for one in (*near, script):
        functions |= {
            node.name: node for node in ast.walk(one.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    own = [
        node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    for room in (*own, script.tree):
        text = "" if isinstance(room, ast.Module) else ast.unparse(room)
        if _TAKEN_OUT.search(text):
            continue
        found = _in(room, functions)
        if found is not None:
            yield _finding(script, *found)
            return


def tokenizes(call: ast.Call) -> bool:
    """`tokenizer(...)`, `self.tok.encode(...)`."""
    name = ast.unparse(call.func)
    return bool(re.fullmatch(r"([\w.]*\.)?(\w*tok(enizer)?|processing_class)(\.(batch_)?encode(_plus)?)?", name))


def _in(room: ast.AST, functions: Functions) -> tuple[ast.AST, ast.Call] | None:
    """Where ids are joined, and the call that makes those that come behind."""
    given: dict[str, list[ast.expr]] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _give(target, node.value, given)
        elif isinstance(node, ast.For | ast.comprehension):
            _give(node.target, node.iter, given)
    for node in own_nodes(room):
        parts = _parts(node)
        if len(parts) > 1 and _ids(parts[0], given, functions) is not None:
            for part in parts[1:]:
                call = _ids(part, given, functions)
                if call is not None and not _without_tokens(call):
                    return node, call
        if isinstance(node, ast.For) and _OF_A_ROW.search(f"{ast.unparse(node.target)} {ast.unparse(node.iter)}"):
            found = _each_turn(node, given, functions)
            if found is not None:
                return found
    return None


def _each_turn(loop: ast.For, given: Given, functions: Functions) -> tuple[ast.AST, ast.Call] | None:
    """`ids += tokenizer(turn)["input_ids"]`, for the turns of one conversation."""
    if _is_over_rows(loop):
        return None
    for node in ast.walk(loop):
        more: ast.expr | None = None
        name = ""
        if isinstance(node, ast.AugAssign):
            more, name = node.value, ast.unparse(node.target)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "extend"
            and node.args
        ):
            more, name = node.args[0], ast.unparse(node.func.value)
        if more is None or not re.search(r"id|tok", name):
            continue
        if any(isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name for one in ast.walk(loop)):
            continue  # begun anew each time: the loop is over rows
        call = _ids(more, given, functions)
        if call is not None and not _without_tokens(call):
            return node, call
    return None


def _extends(node: ast.AST) -> bool:
    func = node.func if isinstance(node, ast.Call) and node.args else None
    return isinstance(func, ast.Attribute) and func.attr == "extend"


def _is_over_rows(loop: ast.For) -> bool:
    """`for conversation in conversations:`, with the turns in a loop within."""
    return any(isinstance(one, ast.For) for one in ast.walk(loop) if one is not loop)


def _parts(node: ast.AST) -> list[ast.expr]:
    """`a + b + [c]`, `[*a, *b]`, `torch.cat([a, b])`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_parts_of(node.left), node.right]
    if isinstance(node, ast.List) and len(node.elts) > 1 and all(isinstance(one, ast.Starred) for one in node.elts[:2]):
        return [one.value if isinstance(one, ast.Starred) else one for one in node.elts]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "torch.cat",
        "torch.concat",
        "np.concatenate",
        "torch.hstack",
    ):
        first = node.args[0] if node.args else None
        return list(first.elts) if isinstance(first, ast.List | ast.Tuple) else []
    return []


def _parts_of(node: ast.expr) -> list[ast.expr]:
    return _parts(node) or [node]


def _give(target: ast.expr, value: ast.expr, given: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Name):
        given.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple):
        zipped = isinstance(value, ast.Call) and ast.unparse(value.func) == "zip"
        values = (
            value.elts if isinstance(value, ast.Tuple) else value.args if zipped and isinstance(value, ast.Call) else []
        )
        for one, part in zip(target.elts, values, strict=False):
            _give(one, part, given)


def _ids(node: ast.expr, given: Given, functions: Functions, depth: int = 0) -> ast.Call | None:
    """The tokenizer's call that an expression's ids begin with; None: another thing, or several."""
    if depth > 8:
        return None
    deeper = depth + 1
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _KEEPS and isinstance(node.func, ast.Attribute):
            return _ids(node.func.value, given, functions, deeper)
        case ast.Call(func=ast.Name(id=name)) if name in functions:
            returned = [one.value for one in own_nodes(functions[name]) if isinstance(one, ast.Return) and one.value]
            return _ids(returned[0], {}, functions, deeper) if len(returned) == 1 else None
        case ast.Call():
            return node if tokenizes(node) else None
        case ast.Attribute(attr="input_ids") | ast.Attribute(attr="ids"):
            return _ids(node.value, given, functions, deeper)
        case ast.Subscript(slice=ast.Slice(lower=None)):
            return _ids(node.value, given, functions, deeper)
        case ast.Subscript(slice=ast.Constant(value="input_ids" | 0) | ast.Name()):
            return _ids(node.value, given, functions, deeper)
        case ast.BinOp(op=ast.Add()):
            return _ids(node.left, given, functions, deeper)
        case ast.Name():
            values = [one for one in given.get(node.id, ()) if not _is_of_itself(one, node.id)]
            calls = [_ids(one, given, functions, deeper) for one in values]
            return calls[0] if calls and all(one is not None and not _without_tokens(one) for one in calls) else None
    return None


def _is_of_itself(value: ast.expr, name: str) -> bool:
    """`ids = ids[:max_length]`, `ids = ids + [eos]`."""
    while isinstance(value, ast.Subscript | ast.BinOp):
        value = value.value if isinstance(value, ast.Subscript) else value.left
    return isinstance(value, ast.Name) and value.id == name


def _without_tokens(call: ast.Call) -> bool:
    """Told about special tokens, or given what cannot be seen."""
    named = [word.arg for word in call.keywords]
    by_place = ast.unparse(call.func).endswith("encode") and len(call.args) > 1
    return by_place or "add_special_tokens" in named or None in named


def _finding(script: Script, joined: ast.AST, call: ast.Call) -> Finding:
    return Finding(
        f"`{ast.unparse(call)[:70]}` is tokenised with special tokens and put behind other ids of the same row: the"
        " tokenizer puts a beginning token in front of it, which stands in the middle of the row, between"
        " prompt and answer, and is trained on there.",
        place=place_of(script, call),
        evidence=Evidence(Level.TEXT, {"joined": ast.unparse(joined)[:80], "add_special_tokens": True}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Pass `add_special_tokens=False` for what comes behind (and add the end token's id by hand).",
            accuracy="Answers follow their prompts as they will at inference.",
            measure="Decode one row, special tokens included.",
        ),
        also=(place_of(script, joined),),
    )
