"""A word behind an option of click's, Typer's or tyro's that is none of its choices, or no number."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.script import Script
from dynotune.audit.read.python.bindings import dotted
from dynotune.audit.shapes.swallowed_by_a_function import started_functions
from dynotune.audit.shapes.values_that_a_parser_refuses import Refused

_NUMBERS: Mapping[str, type] = {
    "int": int,
    "float": float,
    "click.INT": int,
    "click.FLOAT": float,
    "INT": int,
    "FLOAT": float,
}


def words_that_click_refuses(launch: Launch, script: Script) -> Iterator[Refused]:
    if not any(name in script.source for name in ("click", "typer", "tyro")):
        return
    options: dict[str, tuple[list[str], type | None, bool]] = {}
    for function in started_functions(script):
        for mark in function.decorator_list:
            if isinstance(mark, ast.Call) and dotted(mark.func) in ("click.option", "option"):
                _add(mark, script, options)
        for one in (*function.args.args, *function.args.kwonlyargs):
            if one.annotation is not None and one.arg not in options:
                choices = _of_annotation(one.annotation, script)
                kind = _NUMBERS.get(ast.unparse(one.annotation))
                if choices or (kind and "typer" in script.source):
                    options[one.arg] = (choices, kind, True)
    for name, setting in launch.flags.items():
        choices, kind, exactly = options.get(name, ([], None, True))
        value = setting.value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            continue
        word = str(value)
        if any(mark in word for mark in "${}*`"):
            continue
        near = choices if exactly else [one.lower() for one in choices]
        flag = setting.place.key or f"--{name}"
        if choices and (word if exactly else word.lower()) not in near:
            yield Refused(flag, f"takes {' or '.join(f'`{one}`' for one in choices[:6])}, and is given `{word}`")
        elif kind is not None and not _is(word, kind):
            yield Refused(flag, f"takes {'a whole number' if kind is int else 'a number'}, and is given `{word}`")


def _add(mark: ast.Call, script: Script, options: dict[str, tuple[list[str], type | None, bool]]) -> None:
    names = [one.value for one in mark.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    given = {one.arg: one.value for one in mark.keywords}
    flags = [name for name in names if name.startswith("--")]
    kind = given.get("type")
    if not flags or kind is None or {"callback", "nargs", "multiple", "is_flag"} & set(given):
        return
    key = flags[0].partition("/")[0].lstrip("-").replace("-", "_")
    if isinstance(kind, ast.Call) and dotted(kind.func).endswith("Choice") and kind.args:
        sensitive = next((one.value for one in kind.keywords if one.arg == "case_sensitive"), None)
        exactly = not (isinstance(sensitive, ast.Constant) and sensitive.value is False)
        options[key] = (_listed(kind.args[0], script), None, exactly)
    else:
        options[key] = ([], _NUMBERS.get(ast.unparse(kind)), True)


def _listed(node: ast.expr, script: Script) -> list[str]:
    """Constants of a list, here or in the only assignment of a name of the file; empty: not known."""
    if isinstance(node, ast.Name):
        made = [
            one.value
            for one in script.tree.body
            if isinstance(one, ast.Assign) and any(isinstance(at, ast.Name) and at.id == node.id for at in one.targets)
        ]
        return _listed(made[0], script) if len(made) == 1 and not isinstance(made[0], ast.Name) else []
    parts = (
        node.elts
        if isinstance(node, ast.List | ast.Tuple | ast.Set)
        else node.keys
        if isinstance(node, ast.Dict)
        else []
    )
    texts = [one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return texts if len(texts) == len(parts) else []


def _of_annotation(node: ast.expr, script: Script) -> list[str]:
    """`Literal["a", "b"]`, or an enumeration of texts that the file has."""
    if isinstance(node, ast.Subscript) and dotted(node.value).endswith("Literal"):
        return _listed(node.slice, script) if isinstance(node.slice, ast.Tuple) else []
    if isinstance(node, ast.Name):
        for one in script.tree.body:
            if (
                isinstance(one, ast.ClassDef)
                and one.name == node.id
                and any("Enum" in ast.unparse(base) for base in one.bases)
            ):
                held = [part.value for part in one.body if isinstance(part, ast.Assign)]
                texts = [part.value for part in held if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                return texts if len(texts) == len(held) else []
    return []


def _is(word: str, kind: type) -> bool:
    try:
        kind(word)
    except ValueError:
        return False
    return True
