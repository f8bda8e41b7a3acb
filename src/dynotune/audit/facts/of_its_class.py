"""What an argument in a method comes to where it is kept by the object's class: by `self.workers`, or by Lightning's
`self.hparams`."""

import ast
from collections.abc import Sequence

from dynotune.audit.facts.loaded_data import argument
from dynotune.audit.facts.ranks import last_part
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.facts.steps import place_of


def of_its_class(script: Script, call: Call, name: str, near: Sequence[Script]) -> Setting | None:
    """`num_workers=self.hparams.workers` of a class that the program makes once, with `workers=8`, or with a parameter whose
    default is that."""
    given, owner = argument(script, call, name), next((one.name for one in call.around if one.kind == "class"), "")
    key = last_part(given) if isinstance(given, ast.Attribute) else ""
    made = [
        (one, node)
        for one in near
        for node in ast.walk(one.tree)
        if owner and isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == owner
    ]
    if not key or len(made) != 1:
        return None
    of, node = made[0]
    value = next((one.value for one in node.keywords if one.arg == key), None)
    return _number(of, value, node) or (_default(script, owner, key) if value is None else None)


def _number(script: Script, value: ast.expr | None, call: ast.Call) -> Setting | None:
    if isinstance(value, ast.Constant):
        return Setting("", value.value, place_of(script, value), Known.FOLLOWED)
    for node in ast.walk(script.tree) if isinstance(value, ast.Name) else ():
        if isinstance(node, ast.FunctionDef) and node.lineno <= call.lineno <= (node.end_lineno or 0):
            found = _of_parameter(script, node, last_part(value) if value is not None else "")
            if found is not None:
                return found
    return None


def _default(script: Script, owner: str, key: str) -> Setting | None:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                    return _of_parameter(script, one, key)
    return None


def _of_parameter(script: Script, function: ast.FunctionDef, name: str) -> Setting | None:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    pairs = [*zip(reversed(names), reversed(function.args.defaults), strict=False)]
    pairs += [
        (one.arg, value)
        for one, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value
    ]
    value = dict(pairs).get(name)
    return (
        Setting("", value.value, place_of(script, value), Known.FOLLOWED) if isinstance(value, ast.Constant) else None
    )
