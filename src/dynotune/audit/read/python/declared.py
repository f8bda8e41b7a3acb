"""What a command line may set, with its defaults: argparse, dataclasses, and the parsers of transformers and TRL."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dynotune.audit.place import Place
from dynotune.audit.read.python.module import Module, Scope, Site
from dynotune.audit.read.python.value import Made, Value, unknown

if TYPE_CHECKING:
    from dynotune.audit.read.python.evaluator import Evaluator

COMMAND_LINE = "it comes from the command line"


def _adding(module: Module, parse: ast.Call | None) -> list[Site]:
    """Calls that add flags: to the parser that `parse` asks, where that can be followed; else all of the file, those last
    that a run reaches, since another parser's flag may have the same name."""
    every = [*module.calls_by_name.get("add_argument", ()), *module.calls_by_name.get("set_defaults", ())]
    every.sort(key=lambda site: (site.node.lineno, site.node.col_offset))
    if not every or not module.parsers.all:
        return every
    asked = module.parsers.of(parse) if parse is not None else module.parsers.asked()
    of = {call for parser in asked for one in parser.family() for call in one.adds}
    of.update(module.parsers.stray)
    mine = [site for site in every if site.node in of]
    if parse is not None and asked:
        return mine
    return [site for site in every if site.node not in of] + mine


def started(evaluator: "Evaluator") -> Mapping[str, Value]:
    """What the commands give that start this file; of a file that only parses for another, those of the only one started."""
    every = evaluator.others.started_with
    found = every.get(evaluator.module.file)
    return found if found is not None else next(iter(every.values())) if len(every) == 1 else {}


def flags(evaluator: "Evaluator", parse: ast.Call | None = None) -> dict[str, Value]:
    """Of the parser that `parse` asks, or of all of the file: defaults by destination. The trail has the flag as its key
    (`--lr`)."""
    module = evaluator.module
    with_ = started(evaluator)
    found: dict[str, Value] = {}
    for site in _adding(module, parse):
        func = site.node.func
        if not isinstance(func, ast.Attribute):
            continue
        given = {keyword.arg: keyword.value for keyword in site.node.keywords if keyword.arg}
        if func.attr == "set_defaults":
            for name, node in given.items():
                found[name] = evaluator.value(node, site.scope).through(module.place(site.node, f"--{name}"))
            continue
        names = [argument.value for argument in site.node.args if isinstance(argument, ast.Constant)]
        texts = [name for name in names if isinstance(name, str)]
        if not texts:
            found |= _in_rounds(evaluator, site, given, with_)
            continue
        flag = next((name for name in texts if name.startswith("--")), texts[0])
        destination = flag.lstrip("-").replace("-", "_")
        if isinstance(given.get("dest"), ast.Constant):
            destination = str(given["dest"].value)  # type: ignore[attr-defined]
        place = module.place(site.node, flag)
        keys = [name.lstrip("-").replace("-", "_") if name.startswith("-") else "1" for name in texts]
        named = next((with_[key] for key in keys if key in with_), None)
        action = given.get("action")
        switch = action.value if isinstance(action, ast.Constant) else ""
        if "Boolean" in ast.unparse(action or ast.Constant("")) and f"no_{destination}" in with_:
            found[destination] = Value(False, with_[f"no_{destination}"].via).through(place)
            continue
        if named is not None:
            found[destination] = (Value(False, named.via) if switch == "store_false" else named).through(place)
            continue
        default = given.get("default")
        if default is not None:
            value = evaluator.value(default, site.scope)
        elif switch in ("store_true", "store_false"):
            value = Value(switch == "store_false")
        elif not flag.startswith("-") or _true(given.get("required")):
            value = unknown(COMMAND_LINE)
        else:
            value = Value(None)
        found[destination] = _typed(value, given.get("type")).through(place)
    return found


def _in_rounds(
    evaluator: "Evaluator", site: Site, given: Mapping[str, ast.expr], with_: Mapping[str, Value]
) -> dict[str, Value]:
    """`for name, value in DEFAULTS.items(): parser.add_argument(f"--{name}", default=value)`: the flags of all rounds."""
    loop = site.loops[-1] if site.loops else None
    default, first = given.get("default"), site.node.args[0] if site.node.args else None
    if not isinstance(loop, ast.For) or first is None or not isinstance(default, ast.Name):
        return {}
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    over, pairs = loop.iter, False
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items":
        over, pairs = over.func.value, True
    held = evaluator.value(over, site.scope).value
    if pairs:
        rows: list[object] = [list(one) for one in held.items()] if isinstance(held, dict) else []
    else:
        rows = list(held) if isinstance(held, list | tuple) else []
    found: dict[str, Value] = {}
    for row in rows if len(names) == len(targets) > 1 else ():
        row = row.value if isinstance(row, Value) else row
        if not isinstance(row, list | tuple) or len(row) != len(names):
            return {}
        bound = dict(zip(names, row, strict=True))
        flag = _text(first, bound)
        if flag is None or default.id not in bound:
            return {}
        name = flag.lstrip("-").replace("-", "_")
        value = bound[default.id]
        value = value if isinstance(value, Value) else Value(value)
        found[name] = with_.get(name, value).through(evaluator.module.place(site.node, flag))
    return found


def _text(node: ast.expr, bound: Mapping[str, object]) -> str | None:
    """Of a text that is put together of constants and names."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        held = bound.get(node.id)
        held = held.value if isinstance(held, Value) else held
        return held if isinstance(held, str) else None
    parts = (
        [one.value if isinstance(one, ast.FormattedValue) else one for one in node.values]
        if isinstance(node, ast.JoinedStr)
        else [node.left, node.right]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
        else []
    )
    texts = [_text(one, bound) for one in parts]
    return "".join(one for one in texts if one is not None) if texts and None not in texts else None


ABSL = "absl.flags.FLAGS"


def absl_flags(evaluator: "Evaluator") -> dict[str, Value]:
    """Of `flags.DEFINE_float("lr", 1e-5, "...")`, by name."""
    found: dict[str, Value] = {}
    for site in evaluator.module.sites:
        if evaluator.module.dotted(site.node.func).startswith("absl.flags.DEFINE_"):
            found |= absl_flag(evaluator, site.node, site.scope)
    return found


def absl_flag(evaluator: "Evaluator", node: ast.Call, scope: Scope) -> dict[str, Value]:
    """The one that a call defines, with what a command gives for it."""
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    name = node.args[0] if node.args else given.get("name")
    default = node.args[1] if len(node.args) > 1 else given.get("default")
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or default is None:
        return {}
    with_ = started(evaluator)
    value = evaluator.value(default, scope)
    if f"no{name.value}" in with_:
        value = Value(False, with_[f"no{name.value}"].via)
    place = evaluator.module.place(node, f"--{name.value}")
    return {name.value: with_.get(name.value, value).through(place)}


def switches(module: Module) -> dict[str, bool]:
    """What a flag without a value comes to, by flag: `--no-bf16` with `action="store_false"` gives False."""
    found: dict[str, bool] = {}
    for site in module.sites:
        func = site.node.func
        if isinstance(func, ast.Attribute) and func.attr == "add_argument":
            action = next((keyword.value for keyword in site.node.keywords if keyword.arg == "action"), None)
            if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
                for argument in site.node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        found[argument.value] = action.value == "store_true"
    return found


def _typed(value: Value, kind: ast.expr | None) -> Value:
    """argparse converts defaults that are texts."""
    if isinstance(value.value, str) and isinstance(kind, ast.Name) and kind.id in ("int", "float"):
        try:
            return Value(int(value.value) if kind.id == "int" else float(value.value), value.via)
        except ValueError:
            return value
    return value


def _true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def fields(evaluator: "Evaluator", scope: Scope, depth: int = 0) -> dict[str, Value]:
    """Attributes that a class gives its objects without being asked: fields of a dataclass with their defaults, class
    attributes, those of its bases in the project first."""
    node = scope.node
    assert isinstance(node, ast.ClassDef)
    found: dict[str, Value] = {}
    for base in node.bases if depth < 8 else ():
        if isinstance(base, ast.Name):
            for binding in evaluator.module.bound(base.id, scope.parent):
                if binding.kind == "class" and binding.node is not None and binding.node is not node:
                    found.update(fields(evaluator, evaluator.module.scopes[binding.node], depth + 1))
    for name, bindings in scope.bindings.items():
        last = bindings[-1]
        if last.kind == "unknown" and last.annotated:
            found[name] = unknown(COMMAND_LINE)
        elif last.kind == "value" and last.value is not None:
            place = evaluator.module.place(last.node or node, f"--{name}")
            value = _field(evaluator, last.value, scope).through(place)
            # A value within `field(...)` is no assignment that could be edited: only its line is named.
            stands = Place(place.file, place.line, key=name) if isinstance(last.value, ast.Call) else place
            found[name] = Value(value.value, value.via, value.others, stands)
    return found


def _field(evaluator: "Evaluator", node: ast.expr, scope: Scope) -> Value:
    if isinstance(node, ast.Call) and evaluator.module.dotted(node.func).rpartition(".")[2] in (
        "field",
        "Field",
        "HfArg",
    ):
        for keyword in node.keywords:
            if keyword.arg == "default":
                return evaluator.value(keyword.value, scope)
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
                return evaluator.value(keyword.value.body, scope)
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Name):
                empty = {"list": Value([]), "dict": Value({})}.get(keyword.value.id)
                return empty if empty is not None else made_from_command_line(evaluator, keyword.value, scope)
        return evaluator.value(node.args[0], scope) if node.args else unknown(COMMAND_LINE)
    return evaluator.value(node, scope)


def made_from_command_line(
    evaluator: "Evaluator", node: ast.expr, scope: Scope, file: Mapping[str, Value] | None = None, alone: bool = False
) -> Value:
    """What a parser of dataclasses gives for one class. file: the configuration that it reads, flags counting before it.
    alone: it reads no flags."""
    dotted = evaluator.module.dotted(node)
    bound = evaluator.module.bound(node.id, scope) if isinstance(node, ast.Name) else ()
    for binding in bound:
        if binding.kind == "class" and binding.node is not None:
            held = evaluator.module.scopes[binding.node]
            return class_of(evaluator, held, _given(evaluator, evaluator, held, file), node)
    found = evaluator.class_elsewhere(dotted) if dotted else None
    if found is not None:
        other, scope_there = found
        return class_of(other, scope_there, _given(evaluator, other, scope_there, file), node)
    if not dotted:
        return unknown(COMMAND_LINE)
    if alone and file:
        return Value(Made(dotted, dict(file), evaluator.module.place(node)))
    return Value(Made(dotted, {}, evaluator.module.place(node), open=COMMAND_LINE))


def for_one(
    evaluator: "Evaluator", node: ast.expr, others: Sequence[ast.expr], scope: Scope, file: Mapping[str, Value]
) -> Mapping[str, Value]:
    """Of a file that is parsed into several classes what one of the libraries gets: all that it takes, and, where it is a
    trainer's, what none of them has, so that it is seen to be refused."""
    dotted = evaluator.module.dotted(node)
    if not dotted or evaluator.others.takes(dotted, "") is None:
        return file
    own = {name for other in others if other is not node for name in _own_fields(evaluator, other, scope)}
    beside = any(evaluator.module.dotted(other).endswith(("ModelConfig", "ScriptArguments")) for other in others)
    return {
        name: value
        for name, value in file.items()
        if evaluator.others.takes(dotted, name) or not (beside or name in own)
    }


def _own_fields(evaluator: "Evaluator", node: ast.expr, scope: Scope) -> Iterable[str]:
    """Of a class of the project's."""
    for binding in evaluator.module.bound(node.id, scope) if isinstance(node, ast.Name) else ():
        if binding.kind == "class" and binding.node is not None:
            return fields(evaluator, evaluator.module.scopes[binding.node])
    dotted = evaluator.module.dotted(node)
    found = evaluator.class_elsewhere(dotted) if dotted else None
    return fields(*found) if found is not None else ()


def _given(
    evaluator: "Evaluator", there: "Evaluator", scope: Scope, file: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """What the command, and the file that it names, give for the fields of a class of the project's own, `--no_field` as
    False."""
    if library_base(there, scope):
        return {}  # a trainer's own fields are read from the command with the rest of them
    with_, file = started(evaluator), file or {}
    found: dict[str, Value] = {}
    for name, held in fields(there, scope).items() if with_ or file else ():
        if name in file:
            found[name] = replace(file[name], via=(*held.via, *file[name].via))
        given = with_.get(name)
        if given is None and f"no_{name}" in with_:
            given = Value(False, with_[f"no_{name}"].via)
        if given is not None:
            found[name] = Value(given.value, (*held.via, *given.via), (), held.place)
    return found


def class_of(evaluator: "Evaluator", scope: Scope, given: dict[str, Value], node: ast.AST) -> Value:
    """An object of a class of the project. A subclass of a library's class keeps that one's name, so that a project's
    `MyArguments(TrainingArguments)` is read as what it is."""
    definition = scope.node
    assert isinstance(definition, ast.ClassDef)
    named = list(fields(evaluator, scope))
    attributes = fields(evaluator, scope)
    for key, value in given.items():
        if key.isdigit():
            if int(key) < len(named):
                attributes[named[int(key)]] = value
        else:
            attributes[key] = value
    place = given_place = evaluator.module.place(definition)
    base = library_base(evaluator, scope)
    if base and not base.startswith("pydantic"):
        arguments = {name: Value(v.value, v.via, v.others, v.place or given_place) for name, v in attributes.items()}
        # Called by the script, it has its own defaults where nothing is given; a parser may have set any of them.
        opened = "" if isinstance(node, ast.Call) else COMMAND_LINE
        return Value(Made(base, arguments, place, attributes, open=opened))
    return Value(Made(definition.name, given, place, attributes, open="its class gives it no value that can be read"))


def library_base(evaluator: "Evaluator", scope: Scope, depth: int = 0) -> str:
    """The qualified name of the library's class that a class of the project comes from; empty: none."""
    node = scope.node
    for base in node.bases if isinstance(node, ast.ClassDef) and depth < 8 else ():
        dotted = evaluator.module.dotted(base)
        if dotted:
            found = evaluator.class_elsewhere(dotted)
            if found is None:
                return dotted
            inner = library_base(*found, depth + 1)
        elif isinstance(base, ast.Name):
            inner = ""
            for binding in evaluator.module.bound(base.id, scope.parent):
                if binding.kind == "class" and binding.node is not None and binding.node is not node:
                    inner = library_base(evaluator, evaluator.module.scopes[binding.node], depth + 1)
        else:
            inner = ""
        if inner:
            return inner
    return ""
