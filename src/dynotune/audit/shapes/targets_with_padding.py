"""Rows are padded and given out as input and as targets a token later, and the loss is told nothing of padding."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.copied_input import Given, given_in
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_IMPORTS = re.compile(r"(?m)^\s*(?:from [\w.]+ )?import (?:\([^()]*\)|[^\n]*)")
_WHOLE_LOSS = re.compile(r"CrossEntropyLoss\(\s*\)|cross_entropy\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\)")
_TOLD_APART = re.compile(
    r"ignore_index|-100|reduction\s*=\s*[\"'](?:none|sum)|pack_padded|masked_select|CrossEntropyLoss\(\s*weight|\bweight=\w*w"
    r"|\[[^\]\n]*(?:mask|valid|keep|pad)\w*[^\]\n]*\]\s*(?:[),.=]|$)|\*\s*[\w.]*(?:mask|valid|keep|pad)\w*|!=\s*[\w.]*pad"
    r"|==\s*[\w.]*pad|\.ne\(|lengths|(?<!enable_)nested_tensor",
    re.IGNORECASE | re.MULTILINE,
)
"""What may take padding out of the loss. A mask of the attention is none of it."""

_FILLS = re.compile(r"[\w.]*\bpad(?:_?tok(?:en)?)?(?:_?(?:id|idx|index|value))?|PAD\w*|[\w.]*\beos\w*|0|self\.pad\w*")
_FILLED = re.compile(
    rf"(?:\[(?:{_FILLS.pattern})\] \* \(?[^\n]*(?: - len\(|room|gap|short|missing|n_?pad|pad_?len)"
    rf"|F\.pad\([^\n]*value=(?:{_FILLS.pattern})\))"
)
"""`ids + [PAD] * (width - len(ids))`."""

_SHIFTED_PAIR = re.compile(
    r"\b(\w+(?:\[[\"']\w+[\"']\])?)\[(?::|\.\.\.), ?:-1\](?:.|\n){0,600}?\b\1\[(?::|\.\.\.), ?1:\]"
    r"|\b(\w+(?:\[[\"']\w+[\"']\])?)\[(?::|\.\.\.), ?1:\](?:.|\n){0,600}?\b\2\[(?::|\.\.\.), ?:-1\]"
)
"""`x[:, :-1]`, and `x[:, 1:]` near it."""

_SHIFTED = re.compile(r"^(?P<of>.*)\[(?:\.\.\.|:), 1:\]$")


def targets_with_padding(script: Script, project: Project) -> Iterator[Said]:
    if "pad" not in script.source:
        return
    made = next((found for node in ast.walk(script.tree) if (found := _pair(node) or _row(node)) is not None), None)
    batch = None if made is not None else next((one for node in ast.walk(script.tree) if (one := _batch(node))), None)
    if made is None and batch is None:
        return
    sources = [_IMPORTS.sub("", code(one)) for one in connected(script, project)]
    if any(_TOLD_APART.search(one) for one in sources) or not any(_WHOLE_LOSS.search(one) for one in sources):
        return
    if batch is not None and not any(_SHIFTED_PAIR.search(one) and ".backward(" in one for one in sources):
        return
    made = made or batch
    assert made is not None
    yield Finding(
        "Rows are padded, their targets with them, and no `ignore_index` or mask takes the padding out: the loss is"
        " taken on padding as well.",
        place=place_of(script, made),
        evidence=Evidence(Level.TEXT, {"targets": ast.unparse(made)[:120]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give the cross entropy the padding's id as `ignore_index`."
            if batch is not None
            else "Pad targets with -100, which cross entropy leaves out; or give it `ignore_index=pad_id`.",
            accuracy="The loss is on real tokens alone; printed losses rise, since padding is easy.",
        ),
    )


_ROW_BY_ROW = r"\w+\[\w+, ?:"
"""`ids[i, :len(row)] = row`."""


def _pair(node: ast.AST) -> ast.expr | None:
    """Of a function that pads several rows and returns two of one kind, the targets."""
    if not isinstance(node, ast.FunctionDef) or not re.search(r"pad", ast.unparse(node)):
        return None
    given = given_in(node)
    text = ast.unparse(node)
    if re.search(r"(?:full|zeros)\(", text) and not re.search(rf"{_ROW_BY_ROW}|pad_sequence|padding=", text):
        return None
    for one in ast.walk(node):
        if isinstance(one, ast.Return) and one.value is not None:
            parts = _parts(one.value)
            if len(parts) > 1 and _is_padded(parts[0], given) and _is_padded(parts[1], given):
                first, second = (ast.unparse(_followed(part, given)) for part in parts[:2])
                if _are_a_pair(first, second):
                    return parts[1]
    return None


def _batch(node: ast.AST) -> ast.expr | None:
    """What a collator pads several rows to and returns, for the loop to shift."""
    if not isinstance(node, ast.FunctionDef) or "pad" not in ast.unparse(node):
        return None
    given = given_in(node)
    returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
    parts = _parts(returned[0])[:4] or returned[:1] if len(returned) == 1 else []
    return next((one for one in reversed(parts) if _is_padded(one, given)), None)


def _row(node: ast.AST) -> ast.expr | None:
    """Of a function that fills one row up to a width by hand and returns it twice, the targets."""
    if not isinstance(node, ast.FunctionDef) or not _FILLED.search(ast.unparse(node)):
        return None
    given = given_in(node)
    for one in ast.walk(node):
        parts = _parts(one.value) if isinstance(one, ast.Return) and one.value is not None else []
        first, second = (ast.unparse(_followed(part, given)) for part in parts[:2]) if len(parts) > 1 else ("", "")
        if first and _are_a_pair(first, second):
            return parts[1]
    return None


def _parts(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Tuple):
        return value.elts
    if isinstance(value, ast.Dict):
        return value.values
    return []


def _are_a_pair(first: str, second: str) -> bool:
    """One is the other a token later: cut before it is padded, or behind."""
    shifted = _SHIFTED.match(re.sub(r"\.(?:contiguous|clone|long)\(\)$", "", second))
    if shifted is not None:
        return first.startswith(f"{shifted['of']}[") and ":-1" in first
    before = re.search(r"(\w+)(\[['\"]\w+['\"]\])?\[:-1\]", first)
    behind = re.search(r"(\w+)(\[['\"]\w+['\"]\])?\[1:\]", second)
    return before is not None and behind is not None and before[0][:-5] == behind[0][:-4]


def _followed(node: ast.expr, given: Given, depth: int = 0) -> ast.expr:
    """Through names of one value."""
    if isinstance(node, ast.Name) and depth < 4:
        values = given.get(node.id, ())
        return _followed(values[0], given, depth + 1) if len(values) == 1 else node
    return node


def _is_padded(node: ast.expr, given: Given, depth: int = 0) -> bool:
    """By `pad_sequence`, or by a tokenizer that is told to, with what is a token."""
    node = _followed(node, given)
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = _followed(node.value, given)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    words = {word.arg: word.value for word in node.keywords}
    if name.rpartition(".")[2] == "pad_sequence":
        fill = words.get("padding_value") or (node.args[2] if len(node.args) > 2 else ast.Constant(0))
        return _FILLS.fullmatch(ast.unparse(fill)) is not None
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("contiguous", "clone", "long", "to") and depth < 4:
        return _is_padded(node.func.value, given, depth + 1)
    if name in ("torch.full", "torch.zeros", "np.full", "np.zeros", "numpy.full", "numpy.zeros"):
        fill = words.get("fill_value") or (
            node.args[1] if name.endswith("full") and len(node.args) > 1 else ast.Constant(0)
        )
        return _FILLS.fullmatch(ast.unparse(fill)) is not None
    padding = words.get("padding")
    told = isinstance(padding, ast.Constant) and padding.value in (True, "max_length", "longest")
    return told and "tok" in name.lower()
