"""Expressions that take a part of rows, and calls that train on all of them."""

import ast
import re

OF_TESTS = re.compile(
    r"(?:^|_)(?:val|valid|validation|eval|evaluation|test|dev|heldout|held_out)(?:$|_)", re.IGNORECASE
)
"""Names of rows that are held out."""

FEW = 20
"""Rows below which a part is a look at the data, or prompts to be answered, not an evaluation."""


def is_a_look(node: ast.expr) -> bool:
    """`rows[:5]`, `rows.select(range(3))`: how many is written out, and few."""
    whole = [
        one.value for one in ast.walk(_unshuffled(node)) if isinstance(one, ast.Constant) and type(one.value) is int
    ]
    return bool(whole) and max(whole) < FEW


def drawn_from(node: ast.expr) -> str:
    """`rows` of `rows[:100]`, `random.sample(rows, 100)`, `rows.shuffle(seed=0).select(range(100))`; empty: of no name."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        first = name in ("random.sample", "rng.sample") or name.rpartition(".")[2] == "Subset"
        if first and node.args:
            return _named(node.args[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("select", "sample", "take", "head"):
            rows = _named(_unshuffled(node.func.value))
            return rows if rows != "random" else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _named(node.value)
    return ""


def _named(node: ast.expr) -> str:
    """A name, or an attribute of the object's own."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return ast.unparse(node) if own or isinstance(node, ast.Name) else ""


def _unshuffled(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "shuffle":
        node = node.func.value
    return node


_TRAINING_FILE = re.compile(r"(?:^|[/_.-])train(?:ing)?(?:$|[/_.-])")
_KEEPS = frozenset({"to_json", "to_parquet", "to_csv", "save_to_disk", "dump", "write_jsonl", "save_jsonl", "to_disk"})


def kept_for_training(node: ast.AST, whole: str) -> bool:
    """All of the rows go to a file of training rows: `rows.to_json("train.jsonl")`, or a loop over them in a `with` that
    opens one."""
    if isinstance(node, ast.Call):
        last = ast.unparse(node.func).rpartition(".")[2]
        files = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        handed = (*node.args, node.func.value) if isinstance(node.func, ast.Attribute) else tuple(node.args)
        return last in _KEEPS and whole in map(ast.unparse, handed) and any(map(_TRAINING_FILE.search, files))
    if isinstance(node, ast.With):
        opened = ast.unparse(node.items[0].context_expr)
        written = re.search(r"open\([\"'](?P<file>[^\"']+)[\"'], [\"'][wx]", opened)
        loops = [one for one in node.body if isinstance(one, ast.For) and ast.unparse(one.iter) == whole]
        plain = not any(isinstance(one, ast.If | ast.Continue) for top in loops for one in ast.walk(top))
        return written is not None and bool(loops) and plain and _TRAINING_FILE.search(written["file"]) is not None
    return False


def trains_on(call: ast.Call, whole: str) -> bool:
    """`DataLoader(rows, shuffle=True)`, `Trainer(train_dataset=rows)`."""
    options = {one.arg: ast.unparse(one.value) for one in call.keywords if one.arg}
    if options.get("train_dataset") == whole:
        return True
    loader = ast.unparse(call.func).rpartition(".")[2] == "DataLoader" and bool(call.args)
    return loader and ast.unparse(call.args[0]) == whole and options.get("shuffle") == "True"
