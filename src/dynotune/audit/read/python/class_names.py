"""What a script learns when it asks a class for the names that it takes: `dataclasses.fields`, `inspect.signature`, ..."""

import ast
from typing import TYPE_CHECKING

from dynotune.audit.read.python import declared
from dynotune.audit.read.python.module import FUNCTIONS, Scope, parameters
from dynotune.audit.read.python.value import ClassOf, Made, Names, Value

if TYPE_CHECKING:
    from dynotune.audit.read.python.evaluator import Evaluator, Frame

ASKED_BY = frozenset(
    {
        "dataclasses.fields",
        "inspect.signature",
        "inspect.getfullargspec",
        "typing.get_type_hints",
        "attr.fields",
        "attrs.fields",
        "dir",
    }
)
"""Functions that give the names that a class takes, or objects which have them."""

ATTRIBUTES = frozenset({"__dataclass_fields__", "__annotations__", "model_fields", "__fields__", "__match_args__"})
"""Of a class: a mapping or a tuple of its names."""

OF_NAMES = frozenset({"parameters", "args", "kwonlyargs", "keys", "copy", "__members__"})
"""Attributes and methods of what was got so that give the names again."""


def names_of(evaluator: "Evaluator", node: ast.expr, scope: Scope, frame: "Frame") -> Value | None:
    """What the class that an expression names takes: `Names` of a library's, a list of a project's own; None: no class."""
    if isinstance(node, ast.Attribute) and node.attr in ("__init__", "__class__"):
        node = node.value
    place = evaluator.module.place(node)
    dotted = evaluator.module.dotted(node)
    found = evaluator.class_elsewhere(dotted) if dotted else None
    if found is None and isinstance(node, ast.Name):
        for binding in evaluator.module.bound(node.id, scope):
            if binding.kind == "class" and binding.node is not None:
                found = evaluator, evaluator.module.scopes[binding.node]
            elif binding.kind == "function" and isinstance(binding.node, FUNCTIONS) and binding.node.args.kwarg is None:
                return Value([Value(name) for name in sorted(parameters(binding.node))], (place,))
    if found is not None:
        own = declared.fields(*found)
        base = declared.library_base(*found)
        if base and evaluator.others.takes(base, "") is not None:
            return Value(Names(base, frozenset(own)), (place,))
        return Value([Value(name) for name in own], (place,)) if own else None
    held = evaluator.value(node, scope, frame).value
    of = held.name if isinstance(held, (ClassOf, Made)) else dotted
    if of and evaluator.others.takes(of, "") is not None:
        more = held.attributes if isinstance(held, Made) else ()
        return Value(Names(of, frozenset(more)), (place,))
    if isinstance(held, Made) and held.attributes:
        return Value([Value(name) for name in held.attributes], (place,))
    return None
