"""The data set that a trainer gets, followed back from its argument to the call that loads it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.model import Said, argument
from dynotune.audit.read.python.module import Scope
from dynotune.audit.read.python.value import Made, Value

BUILDERS = frozenset({"json", "csv", "parquet", "text", "arrow"})
"""First arguments of `load_dataset` that name a reader, and not the data."""

SAME_ROWS = frozenset({"shuffle", "with_format", "flatten_indices"})
"""Methods of `datasets.Dataset` that give all rows as they were."""

_OTHER = (
    "map remove_columns rename_column rename_columns select_columns cast_column cast add_column select filter take skip"
    " train_test_split repeat"
)
OTHER_ROWS = frozenset(_OTHER.split())
"""That give others, fewer, or some of them several times."""

DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a call of `load_dataset` names, and what is done with it on its way to the trainer."""

    call: Made
    split: str
    """Its argument, or the subscript of what it gives (`data["train"]`); empty: none, or none that is one name."""

    changed: bool
    """Its rows are not those that the trainer gets."""


def of_dataset(found: Loaded) -> Iterator[Said]:
    """Settings for what is loaded; none where it is no single, known data set."""
    named = _named(found.call)
    if named is None:
        return
    place = named.place or found.call.place
    yield Said("dataset_name", "load_dataset", named, place)
    config = argument(found.call, "name", "1")
    if config is not None and isinstance(config.value, str):
        yield Said("dataset_config", "name", config, config.place or found.call.place)
    if found.split not in ("", "train"):
        yield Said("dataset_train_split", "split", Value(found.split, (found.call.place,)), found.call.place)


def loaded(evaluator: Evaluator, node: ast.expr | None, scope: Scope) -> Loaded | None:
    """What the expression of `train_dataset` comes from. None where the way back is not one: branches, loops, several data
    sets, code of others.
    """
    split, changed = "", False
    for _ in range(DEEPEST):
        if isinstance(node, ast.Name):
            step = _bound(evaluator, node, scope)
            if step is None:
                return None
            node, scope = step
        elif isinstance(node, ast.Subscript):
            if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
                return None
            split, node = split or node.slice.value, node.value
        elif not isinstance(node, ast.Call):
            return None
        elif evaluator.module.dotted(node.func).rpartition(".")[2] == "load_dataset":
            given = evaluator.fresh().objects.arguments(node, scope, {})
            call = Made("datasets.load_dataset", given, evaluator.module.place(node))
            told = argument(call, "split")
            if told is not None:
                whole = isinstance(told.value, str) and told.value.isidentifier()
                split, changed = told.value if whole else "", changed or not whole
            return Loaded(call, split if split.isidentifier() else "", changed)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in SAME_ROWS | OTHER_ROWS:
            if node.func.attr == "train_test_split":
                split = ""  # its parts are called `train` and `test`, whatever it is a part of
            changed = changed or node.func.attr in OTHER_ROWS
            node = node.func.value
        elif isinstance(node.func, ast.Name):
            inner = _returned(evaluator, node.func, scope)
            if inner is None:
                return None
            node, scope = inner
        else:
            return None
    return None


def _named(call: Made) -> Value | None:
    """The data itself: a file, a folder, a glob, or a name on the hub."""
    name, files = argument(call, "path", "0"), argument(call, "data_files")
    if name is None or not isinstance(name.value, str) or not name.value:
        return None
    if files is None:
        return None if name.value in BUILDERS else name
    if name.value not in BUILDERS:
        return None
    if isinstance(files.value, dict) and len(files.value) == 1:
        files = files.value.get("train")
    if isinstance(files, Value) and isinstance(files.value, list) and len(files.value) == 1:
        files = files.value[0]
    return files if isinstance(files, Value) and isinstance(files.value, str) and files.value else None


def _bound(evaluator: Evaluator, name: ast.Name, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """What the name was last given before, where that is sure."""
    holder = evaluator.module.holder(name.id, scope)
    if holder is None:
        return None
    before = (name.lineno, name.col_offset) if holder is scope else None
    bindings = [one for one in holder.bindings[name.id] if before is None or one.at < before]
    last = bindings[-1] if bindings else None
    if last is None or last.kind != "value" or last.value is None or last.path:
        return None
    if any(part != "rest" for _, part in last.branches):
        return None
    return last.value, holder


def _returned(evaluator: Evaluator, function: ast.Name, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """What a function of the file returns, where it does so in one place."""
    for binding in evaluator.module.bound(function.id, scope):
        if binding.kind == "function" and binding.node is not None:
            inside = evaluator.module.scopes[binding.node]
            if len(inside.returns) == 1 and inside.returns[0][0].value is not None:
                return inside.returns[0][0].value, inside
    return None
