"""Models of a program's own whose every weight takes part in each forward pass."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.script import Script

_LAYERS = re.compile(r"^(torch\.)?nn\.(?!functional|init)[A-Z]\w*$")
_DRAWS = re.compile(
    r"\brand(om|int|perm|n)?\b|random\.|bernoulli|expert|router|rout(e|ing)\b|top_?k\b|\bmoe\b|layer_?drop|drop_?path"
    r"|early_?exit|skip_?layer|\bcontinue\b",
    re.IGNORECASE,
)
"""Words of a forward pass that may leave layers out at a step."""

_ALWAYS_SO = re.compile(r"\b(labels?|targets?|y|training|checkpoint\w*|flash|mask|cache\w*|kv\w*)\b")
"""What a condition of a forward pass may ask for without leaving layers out of a training step."""

_BY_NAME = re.compile(r"\b(setattr|add_module|register_parameter|register_module)\(")


def every_weight_is_used(scripts: Sequence[Script]) -> bool:
    """Whether these files define models, and each uses all layers that it makes whenever it is called. Said only of classes
    that name their layers as attributes."""
    classes = {node.name: node for one in scripts for node in ast.walk(one.tree) if isinstance(node, ast.ClassDef)}
    models = {name: node for name, node in classes.items() if _is_model(node, classes)}
    trained = [node for name, node in models.items() if any(_made(node, models))]
    return bool(trained) and all(_uses_all(node, models) for node in trained)


def _is_model(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], depth: int = 0) -> bool:
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return "Module" in bases or any(
        depth < 4 and base in classes and classes[base] is not node and _is_model(classes[base], classes, depth + 1)
        for base in bases
    )


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}


def _made(node: ast.ClassDef, models: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Attributes that hold weights: `self.fc = nn.Linear(...)`, a list of blocks, a parameter."""
    start = _methods(node).get("__init__")
    for one in ast.walk(start) if start is not None else ():
        if not isinstance(one, ast.Assign):
            continue
        for target in one.targets:
            pairs = [(target, one.value)]
            if isinstance(target, ast.Tuple) and isinstance(one.value, ast.Tuple):
                pairs = list(zip(target.elts, one.value.elts, strict=False))
            for held, value in pairs:
                if _own(held) and any(_is_layer(call, models) for call in ast.walk(value)):
                    yield _own(held)


def _is_layer(node: ast.AST, models: Mapping[str, ast.ClassDef]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    return name in models or (_LAYERS.match(name) is not None and not name.endswith("Loss"))


def _own(node: ast.AST) -> str:
    """`name` of `self.name`."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else ""


def _uses_all(node: ast.ClassDef, models: Mapping[str, ast.ClassDef]) -> bool:
    methods = _methods(node)
    if "forward" not in methods or _BY_NAME.search(ast.unparse(node)):
        return False
    run: dict[str, ast.FunctionDef] = {"forward": methods["forward"]}
    for _ in methods:  # what it calls, and what that calls
        called = {_own(one) for method in run.values() for one in ast.walk(method)} & methods.keys()
        run |= {name: methods[name] for name in called - {"__init__"}}
    made = set(_made(node, models))
    for method in run.values():
        if _DRAWS.search(ast.unparse(method)) or _leaves_out(method, made):
            return False
    used = {_own(one) for method in run.values() for one in ast.walk(method)}
    return made <= used


def _leaves_out(method: ast.FunctionDef, made: set[str]) -> bool:
    """A condition decides which layers run, or a slice of a list does."""
    for one in ast.walk(method):
        if isinstance(one, ast.Subscript) and _own(one.value) in made and isinstance(one.slice, ast.Slice):
            return True
        if isinstance(one, ast.If | ast.IfExp) and not _ALWAYS_SO.search(ast.unparse(one.test)):
            sides = (
                (one.body if isinstance(one.body, list) else [one.body]),
                (one.orelse if isinstance(one.orelse, list) else [one.orelse]),
            )
            first, second = ({_own(part) for top in side for part in ast.walk(top)} & made for side in sides)
            if first != second:
                return True
    return False
