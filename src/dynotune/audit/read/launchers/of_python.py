"""Commands that a Python file starts: `subprocess.run([...])`, `os.system(f"...")`, and lists to which it adds a flag for
each key of a configuration."""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.read.launchers import read_launches
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.module import Scope, Site
from dynotune.audit.read.python.modules import Modules

_STARTS = frozenset(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen"))
_STARTS_TEXT = frozenset({"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"})
_SPLIT = ("shlex.split", "split")
_FILLED_IN = re.compile(r"%(?:\(\w+\))?[\d.]*[a-zA-Z]")
_HOLE = re.compile(r"(?<!\$)\{[^{}]*\}")
FEW = 3
"""Keys of a configuration that are flags of the script, from which on it is what a launcher makes flags of."""

_DASHED = re.compile(r"replace\(\s*['\"]_['\"]\s*,\s*['\"]-['\"]\s*\)")


def commands_of_python(
    root: Path, scripts: Mapping[str, Script], modules: Modules, configs: Mapping[str, ConfigFile]
) -> list[Launch]:
    """In files that start another of the project's by a list of words that can be followed."""
    found: list[Launch] = []
    for name, script in scripts.items():
        if not re.search(r"subprocess|os\.system|os\.popen", script.source) or name not in modules:
            continue
        evaluator = Evaluator(modules[name], modules, configs)
        said = _named(configs, "\n".join(evaluator.module.lines))
        loops: Loops = {}
        for site in evaluator.module.sites:
            if evaluator.module.dotted(site.node.func) in _STARTS | _STARTS_TEXT and site.node.args:
                found += _of_call(root, evaluator, site, scripts, said, loops)
    return found


def _of_call(
    root: Path,
    evaluator: Evaluator,
    site: Site,
    scripts: Mapping[str, Script],
    said: Mapping[str, ConfigFile],
    loops: "Loops",
) -> Iterator[Launch]:
    """said: the configurations that the file speaks of. loops: over keys, of the scopes that were looked at before."""
    node, scope = _where_made(evaluator, site.node.args[0], site.scope)
    words = list(_words(evaluator, node, scope))
    file, line = evaluator.module.file, site.node.lineno
    command = shlex.join(words).replace("'${", "${").replace("}'", "}")
    if not words:
        written, command = _written(evaluator, node, scope)
        line = written.lineno if command else line
    launches = read_launches(root / file, "\n" * (line - 1) + command, root) if command else []
    for launch in (one for one in launches if one.script in scripts and one.script != file):
        if scope.node not in loops:
            loops[scope.node] = next(_over_keys(evaluator, scope), None)
        keys = loops[scope.node]
        if keys is None:
            yield launch
        else:
            yield from _with_keys(launch, keys, scripts, said)


def _where_made(evaluator: Evaluator, node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope]:
    """The list itself, or its name in the function of the file that gives it back (`command = build(recipe)`)."""
    bound = evaluator.module.bound(node.id, scope) if isinstance(node, ast.Name) else ()
    made = bound[0].value if len(bound) == 1 else node
    name = made.func.id if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else ""
    for binding in evaluator.module.bound(name, scope) if name else ():
        inside = evaluator.module.scopes.get(binding.node) if binding.node is not None else None
        if binding.kind == "function" and inside is not None and len(inside.returns) == 1:
            given = inside.returns[0][0].value
            if isinstance(given, ast.Name | ast.List | ast.JoinedStr | ast.BinOp | ast.Call):
                return given, inside
    return node, scope


def _joins(node: ast.expr) -> bool:
    """`" ".join(words)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"


def _written(evaluator: Evaluator, node: ast.expr, scope: Scope) -> tuple[ast.expr, str]:
    """A command that is one string: the expression that begins it, and its text, with `${UNKNOWN}` for what is known only
    when it runs."""
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) == _SPLIT[0]:
        return _written(evaluator, node.args[0], scope)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _SPLIT
        and not node.args
    ):
        return _written(evaluator, node.func.value, scope)
    if isinstance(node, ast.Name):
        bound = [one for one in evaluator.module.bound(node.id, scope) if one.value is not None and not one.path]
        parts = [
            (one.value, _text(evaluator, one.value, scope))
            for one in bound
            if one.value is not None and (one.kind == "augment" or one.operator is None)
        ]
        if not parts or sum(one.kind == "value" for one in bound) != 1 or bound[0].kind != "value":
            return node, ""
        return (parts[0][0] if parts[0][1] else node), "".join(text for _, text in parts) if parts[0][1] else ""
    return node, _text(evaluator, node, scope)


def _text(evaluator: Evaluator, node: ast.expr, scope: Scope) -> str:
    """Of a string that may be put together; empty: it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(one.value) if isinstance(one, ast.Constant) else _filled(evaluator, one, scope) for one in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(evaluator, one, scope) for one in (node.left, node.right)]
        return "".join(one or "${UNKNOWN}" for one in parts) if any(parts) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _FILLED_IN.sub("${UNKNOWN}", _text(evaluator, node.left, scope))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _HOLE.sub("${UNKNOWN}", _text(evaluator, node.func.value, scope))
    if isinstance(node, ast.Call) and _joins(node) and node.args:
        words = list(_words(evaluator, node.args[0], scope))
        return " ".join(words)
    return ""


def _filled(evaluator: Evaluator, node: ast.expr, scope: Scope) -> str:
    value = evaluator.fresh().value(node.value, scope) if isinstance(node, ast.FormattedValue) else None
    known = value is not None and not value.others and isinstance(value.value, str | int | float)
    return str(value.value) if known and value is not None else "${UNKNOWN}"


def _words(evaluator: Evaluator, node: ast.expr, scope: Scope, within: frozenset[str] = frozenset()) -> Iterator[str]:
    """Of a list, or of a name that is given one: what stands in it, `${...}` for what is known only when it runs. within:
    names whose values are being read, which they may be made of themselves (`command = command + ["--fast"]`)."""
    if isinstance(node, ast.Name):
        if node.id in within:
            return
        bound = [one for one in evaluator.module.bound(node.id, scope) if one.value is not None and not one.path]
        for one in bound:
            if isinstance(one.value, ast.List | ast.BinOp):
                yield from _words(evaluator, one.value, scope, within | {node.id})
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _words(evaluator, node.left, scope, within)
        yield from _words(evaluator, node.right, scope, within)
        return
    for element in node.elts if isinstance(node, ast.List | ast.Tuple) else ():
        if isinstance(element, ast.Starred):
            continue
        value = evaluator.fresh().value(element, scope)
        if ast.unparse(element) == "sys.executable":
            yield "python"
        elif isinstance(element, ast.JoinedStr) and (written := _text(evaluator, element, scope)).startswith("-"):
            yield written  # `f"--lr={cfg['lr']}"`
        elif isinstance(value.value, str | int | float) and not value.others:
            yield str(value.value)
        else:
            yield "${UNKNOWN}"


Flags = Mapping[str, str]
"""Flags without dashes, by the configuration's keys."""

Loops = dict[ast.AST, tuple[Flags | None, bool] | None]
"""The first loop over keys of each scope; None: it has none."""


def _over_keys(evaluator: Evaluator, scope: Scope) -> Iterator[tuple[Flags | None, bool]]:
    """Loops of a function that make flags of a configuration's keys: which (None: all that there are, by their names), and
    whether dashes stand for underscores."""
    for node in ast.walk(scope.node):
        if not isinstance(node, ast.For):
            continue
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [one.id for one in targets if isinstance(one, ast.Name)]
        body = "\n".join(ast.unparse(one) for one in node.body)
        over, dashed = node.iter, bool(_DASHED.search(body))
        every = isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items"
        if every and isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and len(names) == 2:
            held = evaluator.fresh().value(over.func.value, scope).value
            named = {key: one.value for key, one in held.items()} if isinstance(held, dict) else {}
            if named and all(isinstance(one, str) and one.startswith("--") for one in named.values()):
                if re.search(rf"\[{names[1]}, ", body):
                    yield {str(key): flag.lstrip("-") for key, flag in named.items()}, False
                continue
        if not names or not re.search(rf"f['\"]--\{{{names[0]}\b|'--' \+ {names[0]}\b", body):
            continue
        if every:
            if (
                isinstance(over, ast.Call)
                and isinstance(over.func, ast.Attribute)
                and _loses_keys(evaluator, over.func.value, scope)
            ):
                continue
            if not re.search(rf"\bif\b[^\n]*\b{names[0]}\b", body):  # else some are left out, by name
                yield None, dashed
            continue
        held = evaluator.fresh().value(over, scope).value
        keys = [one.value if hasattr(one, "value") else one for one in held] if isinstance(held, list) else []
        if keys and all(isinstance(one, str) for one in keys):
            yield {one: one for one in keys}, dashed


def _loses_keys(evaluator: Evaluator, node: ast.expr, scope: Scope) -> bool:
    """Some are taken out before: `recipe.pop("name")`, `{key: value for ... if key != "name"}`."""
    bound = evaluator.module.bound(node.id, scope) if isinstance(node, ast.Name) else ()
    if any(isinstance(one, ast.DictComp) for one in (node, *(binding.value for binding in bound))):
        return True
    name = re.escape(ast.unparse(node))
    return re.search(rf"\b{name}\.pop\(|\bdel {name}\[", "\n".join(evaluator.module.lines)) is not None


def _named(configs: Mapping[str, ConfigFile], source: str) -> Mapping[str, ConfigFile]:
    """The configurations that a launcher names by their files; all, where it names none."""
    named = {
        file: one for file, one in configs.items() if re.search(rf"\b{re.escape(PurePosixPath(file).name)}\b", source)
    }
    return named or configs


def _with_keys(
    launch: Launch,
    keys: tuple[Flags | None, bool],
    scripts: Mapping[str, Script],
    configs: Mapping[str, ConfigFile],
) -> Iterator[Launch]:
    """The command once for each configuration whose keys are the script's flags."""
    names, dashed = keys
    flags = {name.lstrip("-").replace("-", "_") for name in scripts[launch.script].constants if name.startswith("--")}
    flags |= _of_parameters(scripts[launch.script])
    for file, config in configs.items():
        given = {str(key): value for key, value in config.values.items() if names is None or key in names}
        called = {key: (names[key] if names is not None else key).replace("-", "_") for key in given}
        if config.kind not in ("unknown", "") or len(set(called.values()) & flags) < FEW:
            continue
        said: dict[str, Setting] = dict(launch.flags)
        for key, value in given.items():
            place = config.places.get(key)
            if value is None or value is False:
                value = Unknown("the launcher may leave out what is not given, or false")
            if place is not None and not isinstance(value, dict | list):
                flag = (names[key] if names is not None else key) if not dashed else key.replace("_", "-")
                said[called[key]] = Setting(called[key], value, replace(place, key=f"--{flag}"))
        yield replace(launch, flags=said, configs=(*launch.configs, file))


def _of_parameters(script: Script) -> set[str]:
    """Of functions under typer, fire or click."""
    return {
        one.arg
        for node in script.tree.body
        if isinstance(node, ast.FunctionDef)
        for one in (*node.args.args, *node.args.kwonlyargs)
        if re.search(r"\b(?:typer|fire|click|tyro)\b", script.source)
    }
