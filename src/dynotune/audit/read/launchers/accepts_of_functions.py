"""Which flags a function takes that Typer, Click or tyro makes a command of.

fire is none of them: it runs the function first, and speaks of what is left over when that is done.
"""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.script import Script
from dynotune.audit.read.python.bindings import dotted

_COMMANDS = re.compile(r"\b(?:typer|tyro|click)\b")


def flags_of_a_command(script: Script) -> tuple[str, frozenset[str], frozenset[str]] | None:
    """Whose command it is, its flags by destination, and as a command must spell them (empty: in either way); None: there is
    none, several, or one that cannot be read."""
    if not _COMMANDS.search(script.source):
        return None
    tree = script.tree
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found = [*_by_a_call(tree, functions, classes), *_marked(functions, tree)]
    whose, names = found[0] if len(found) == 1 else ("", None)
    if names is None:
        return None
    spelled = {
        one
        for name in names
        for flag in (name if name.startswith("-") else f"--{name.replace('_', '-')}",)
        for one in (flag, f"--no-{flag.lstrip('-')}")
    }
    flags = frozenset(name.lstrip("-").replace("-", "_") for name in names)
    either = whose == "tyro" or "token_normalize_func" in script.source
    return whose, flags, frozenset() if either else frozenset(spelled)


def _by_a_call(
    tree: ast.Module, functions: dict[str, ast.FunctionDef], classes: dict[str, ast.ClassDef]
) -> Iterator[tuple[str, set[str] | None]]:
    """`typer.run(main)`, `tyro.cli(Arguments)`."""
    for node in ast.walk(tree):
        whose = dotted(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or whose not in ("typer.run", "tyro.cli"):
            continue
        name = node.args[0].id if node.args and isinstance(node.args[0], ast.Name) else ""
        plain = whose == "typer.run" or {one.arg for one in node.keywords} <= {"description", "prog", "default"}
        if name in functions and plain:
            yield whose.partition(".")[0], _parameters(functions[name])
        elif name in classes and plain and whose == "tyro.cli":
            yield "tyro", _fields(classes[name], set(classes))
        else:
            yield whose, None


def _parameters(function: ast.FunctionDef) -> set[str] | None:
    """By their names, and by those that `Option("--lr", ...)` gives them."""
    given = function.args
    if given.kwarg is not None or given.vararg is not None:
        return None
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    said = [one.annotation for one in every] + [*given.defaults, *given.kw_defaults]
    return {one.arg for one in every} | {name for one in said if one is not None for name in _written(one)}


def _written(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.startswith("-"):
            yield from one.value.split("/")


def _fields(node: ast.ClassDef, classes: set[str]) -> set[str] | None:
    """Of a plain dataclass whose fields are no classes of the file themselves."""
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    inside = {one.id for field in fields for one in ast.walk(field.annotation) if isinstance(one, ast.Name)}
    if node.bases or inside & classes or any("tyro" in ast.unparse(one) for one in fields):
        return None
    plain = {"int", "float", "str", "bool", "Path", "Optional", "Literal", "List", "Tuple", "list", "tuple"}
    return {ast.unparse(one.target) for one in fields} if inside <= plain else None


def _marked(functions: dict[str, ast.FunctionDef], tree: ast.Module) -> Iterator[tuple[str, set[str] | None]]:
    """Under `@click.command()` with its options, or `@app.command()` of a `typer.Typer()`."""
    for function in functions.values():
        if len(function.decorator_list) == 1 and _is_of_typer(function.decorator_list[0], tree):
            yield "typer", _parameters(function)
            continue
        marks = {dotted(one.func if isinstance(one, ast.Call) else one): one for one in function.decorator_list}
        if not any(name.endswith((".group", ".command", ".callback")) for name in marks):
            continue
        calls = [one for one in function.decorator_list if isinstance(one, ast.Call)]
        options = [one for one in calls if dotted(one.func) in ("click.option", "click.argument")]
        bare = [one for one in function.decorator_list if one not in options]
        alone = len(bare) == 1 and dotted(bare[0].func if isinstance(bare[0], ast.Call) else bare[0]) == "click.command"
        loose = any("context_settings" in ast.unparse(one) for one in bare)
        names = {name for one in options for written in one.args for name in _written(written)}
        yield "click", names if alone and not loose and options else None


def _is_of_typer(mark: ast.expr, tree: ast.Module) -> bool:
    """`@app.command()`, of an application that the file makes and adds no other to."""
    name = dotted(mark.func) if isinstance(mark, ast.Call) else ""
    app, _, last = name.rpartition(".")
    made = [
        ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == app
    ]
    return (
        last == "command"
        and len(made) == 1
        and made[0].startswith("typer.Typer(")
        and f"{app}.add_typer" not in ast.unparse(tree)
    )
