"""Functions that begin with all tokens as labels, and take the prompt out only where they have found the answer."""

import ast
import re
from collections.abc import Iterator, Sequence

_FOUND = re.compile(r"(\w+)(?: != -1| > -1| >= 0| > 0| is not None| != None)?")
_MISSING = re.compile(r"(\w+) (?:== -1|< 0|is None|== None)|not (\w+)")
_SEARCH = re.compile(r"\b\w*(?:find|index|search|locate|match)\w*\(|\.where\(|nonzero\(", re.IGNORECASE)
_EQUALS = re.compile(
    r"\[[^\]]*:[^\]]*\](?:\.tolist\(\))? == |== \w+\[[^\]]*:|torch\.equal\(|(?:array_equal|all)\(|\.startswith\("
)
"""A piece of the ids is held against a mark's."""

_WHOLE = re.compile(r"(?:list\(|torch\.tensor\(|copy\.\w+\()?[\w.\[\]'\"]*(?:ids|tokens|input)\w*\b[\w.\[\]'\"():]*")
_LABELS = re.compile(r"^\w*(?:labels?|targets?)\w*$")


def masked_where_found(function: ast.FunctionDef) -> ast.AST | None:
    """What lets a row go by with its labels whole."""
    text = ast.unparse(function)
    if any(isinstance(one, ast.Raise | ast.Assert) for one in ast.walk(function)) or not re.search(
        r"-100|IGNORE", text
    ):
        return None
    whole = {
        name for name, value in _assigned(function) if _LABELS.match(name) and _WHOLE.fullmatch(ast.unparse(value))
    }
    searched = set(_searched(function))
    return (_only_there(function, whole, searched) if whole else None) or _zero(function, text)


def _assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield ast.unparse(node.targets[0]), node.value


def _searched(function: ast.FunctionDef) -> Iterator[str]:
    """Names of places that a search gives: by a call, or set under a comparison in a loop, where nothing was before it."""
    for name, value in _assigned(function):
        if name.isidentifier() and _SEARCH.search(ast.unparse(value)):
            yield name
    nothing = {name for name, value in _assigned(function) if ast.unparse(value) in ("None", "-1", "0")}
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)):
        for branch in (node for node in ast.walk(loop) if isinstance(node, ast.If)):
            if _EQUALS.search(ast.unparse(branch.test)):
                yield from (name for name, _ in _assigned(branch) if name in nothing)


def _only_there(function: ast.FunctionDef, whole: set[str], searched: set[str]) -> ast.AST | None:
    for node, behind in _branches(function.body):
        test = ast.unparse(node.test)
        found, missing = _FOUND.fullmatch(test), _MISSING.fullmatch(test)
        if found is not None and found[1] in searched and not missing:
            others = [one for one in node.orelse if not _speaks(one)]
            if _masks(node.body, whole) and not others and not _looked_at(behind, found[1], whole):
                return node
        elif missing is not None and (missing[1] or missing[2]) in searched and not node.orelse:
            *before, last = node.body
            goes_on = isinstance(last, ast.Continue) and _masks_rows(behind, whole)
            gives = isinstance(last, ast.Return) and last.value is not None and _names(last.value) & whole
            if all(map(_speaks, before)) and (goes_on or (gives and _masks(behind, whole))):
                return last
    return None


def _branches(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.If, Sequence[ast.stmt]]]:
    """Each with what stands behind it."""
    for number, node in enumerate(body):
        if isinstance(node, ast.If):
            yield node, body[number + 1 :]
        for part in ("body", "orelse"):
            inner = getattr(node, part, None)
            if isinstance(inner, list) and not isinstance(node, ast.FunctionDef):
                yield from _branches(inner)


def _masks(body: Sequence[ast.stmt], whole: set[str]) -> bool:
    """`labels[:start] = -100`, also in a loop, or `labels = [-100] * start + labels[start:]`."""
    return any(
        isinstance(node, ast.Assign)
        and re.search(r"-100|IGNORE", ast.unparse(node.value))
        and re.split(r"[\[.]", ast.unparse(node.targets[0]))[0] in whole
        for top in body
        for node in ast.walk(top)
    )


def _masks_rows(body: Sequence[ast.stmt], whole: set[str]) -> bool:
    """`labels[i, :start] = -100`: the row stays in the batch whether it is masked or not."""
    return any(
        isinstance(node, ast.Assign)
        and re.search(r"-100|IGNORE", ast.unparse(node.value))
        and re.match(rf"(?:{'|'.join(map(re.escape, whole))})\[\w+(?:,|\])", ast.unparse(node.targets[0]))
        for top in body
        for node in ast.walk(top)
    )


def _looked_at(behind: Sequence[ast.stmt], name: str, whole: set[str]) -> bool:
    """What follows asks whether anything was found, or whether anything is left."""
    for top in behind:
        for node in ast.walk(top):
            if isinstance(node, ast.If | ast.IfExp) and _names(node.test) & {name, *whole}:
                return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def masked_before(name: str) -> str:
    """A pattern of code that takes labels out up to a place: `[-100] * n`, `labels[:n] = -100`, and one by one, as in
    `[t if at >= n else -100 for ...]`."""
    one_by_one = rf"[^\n]* (?:>=|<=|<|>) {name}\b"
    return (
        rf"(?:-100|\w*IGNORE\w*)\] \* (?:min\()?{name}\b|\[(?:0)?:{name}\] = |range\({name}\)"
        rf"| if{one_by_one} else [^\n]*(?:-100|IGNORE)|(?:-100|IGNORE\w*) if{one_by_one}|\.where\({one_by_one}[^\n]*-100"
    )


_BY_TEXT = re.compile(r"\.r?(?:find|index)\(|\w*(?:find|locate|search)\w*\(")


def _zero(function: ast.FunctionDef, text: str) -> ast.AST | None:
    """`n = len(tok(parts[0])) if len(parts) > 1 else 0`, and `[-100] * n` behind it."""
    split = {name for name, value in _assigned(function) if re.search(r"\.r?(?:split|partition)\(", ast.unparse(value))}
    for name, value in _assigned(function):
        if not isinstance(value, ast.IfExp) or not re.search(masked_before(name), text):
            continue
        test = ast.unparse(value.test)
        parts = re.fullmatch(r"len\((\w+)\) (?:> 1|== 2|>= 2)", test)
        there = re.fullmatch(r"[\w.'\"#: \\]+ in \w*(?:text|rendered|string|full|content|sample|prompt)\w*", test)
        place = _FOUND.fullmatch(test)
        sought = place is not None and place[1] in {
            one for one, what in _assigned(function) if _BY_TEXT.search(ast.unparse(what))
        }
        found = (parts is not None and parts[1] in split) or (there is not None and " not in " not in test) or sought
        if found and isinstance(value.orelse, ast.Constant) and value.orelse.value == 0:
            return value
    return None


def _speaks(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    says = isinstance(call, ast.Call) and re.search(r"(^|\.)(print|warn\w*|debug|info|error)$", ast.unparse(call.func))
    counts = isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant)
    return bool(says) or counts or isinstance(node, ast.Pass)
