"""Programs open configurations by names that stand in their code, and a file beside those is none of them."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.python.bindings import FUNCTIONS, dotted

_LOADS = re.compile(r"(?:^|\.)(?:yaml\.\w*load|OmegaConf\.load|json\.load|tomllib\.load|toml\.load|YAML\(.*\)\.load)$")
_OF_TEXT = re.compile(r"(?:^|\.)(?:json|tomllib|tomli|toml)\.loads$")
_IS_READ = re.compile(r"\.read_(?:text|bytes)\(|\bopen\(")
"""Of the text of a file, read in the same call: other texts are no files."""

_ANY = re.compile(
    r"parse_yaml_file|parse_json_file|parse_args_and_config|TrlParser|jsonargparse|configargparse|hydra|LightningCLI|dynaconf"
    r"|\bglob\(|listdir\(|iterdir\(|import_module|draccus|tyro\.extras|safe_load_all|\.load_all\("
)
"""A program that may read files by names that do not stand in it."""

_KINDS = frozenset({"unknown", "trl", "transformers", "hydra"})


def loaded_by_name(project: Project) -> Iterator[Said]:
    loads = [(script, call) for script in project.scripts for call in loading(script)]
    if not loads or any(_ANY.search(code(script)) for script in project.scripts):
        return
    named = [names_opened(call, script, project) for script, call in loads]
    if any(one is None for one in named):
        return
    paths = {path for one in named if one is not None for path in one}
    used = [config for config in project.configs if any(is_file(config.file, path) for path in paths)]
    for config in project.configs:
        other = next((one for one in used if _beside(config, one)), None)
        if config in used or other is None or _spoken_of(config, project):
            continue
        name = PurePosixPath(config.file).name
        told = [
            Place(document, number)
            for document, text in project.documents.items()
            for number, line in enumerate(text.split("\n"), 1)
            if name in line
        ]
        script, call = next((script, call) for script, call in loads)
        yield Finding(
            f"Nothing loads `{config.file}`: the project's programs open `{other.file}` by its name, and take no other.",
            place=Place(config.file, 1),
            also=(*told, Place(script.file, call.lineno)),
            evidence=Evidence(Level.TEXT, {"unused": config.file, "loaded": sorted(paths)}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.OPERATIONAL, "Let the program take the file's name, or take the file out."),
        )


def loading(script: Script) -> Iterator[ast.Call]:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and (
            _LOADS.search(ast.unparse(node.func))
            or (_OF_TEXT.search(ast.unparse(node.func)) and node.args and _IS_READ.search(ast.unparse(node.args[0])))
        ):
            yield node


def names_opened(call: ast.Call, script: Script, project: Project) -> list[str] | None:
    """The files that a call may open; None: that cannot be told."""
    given = call.args[0] if call.args else None
    return _path(given, script, project, 0) if given is not None else None


def _path(node: ast.expr, script: Script, project: Project, depth: int) -> list[str] | None:
    if depth > 6:
        return None
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Call() if (
            dotted(node.func) in ("open", "Path", "pathlib.Path", "os.path.abspath", "str") and node.args
        ):
            return _path(node.args[0], script, project, depth + 1)
        case ast.Call(func=ast.Attribute(value=inner, attr="open" | "read_text" | "read_bytes" | "resolve" | "read")):
            return _path(inner, script, project, depth + 1)
        case ast.Call(func=ast.Attribute(attr="join"), args=[*_, last]):
            return _path(last, script, project, depth + 1)
        case ast.BinOp(op=ast.Div(), right=right):
            return _path(right, script, project, depth + 1)
        case ast.Name(id=name):
            return _of_a_name(name, node, script, project, depth)
    return None


def _of_a_name(name: str, node: ast.expr, script: Script, project: Project, depth: int) -> list[str] | None:
    """By its only assignment, the `with` that opens it, or the calls of the function whose parameter it is."""
    function = _around(node, script)
    if function is not None and name in [one.arg for one in function.args.args]:
        return _of_a_parameter(name, function, script, project, depth)
    values: list[ast.expr] = []
    for one in ast.walk(function or script.tree):
        if isinstance(one, ast.Assign) and any(isinstance(at, ast.Name) and at.id == name for at in one.targets):
            values.append(one.value)
        elif isinstance(one, ast.withitem) and isinstance(one.optional_vars, ast.Name) and one.optional_vars.id == name:
            values.append(one.context_expr)
    if not values and function is not None:
        values = [
            one.value
            for one in script.tree.body
            if isinstance(one, ast.Assign) and any(isinstance(at, ast.Name) and at.id == name for at in one.targets)
        ]
    found = [_path(value, script, project, depth + 1) for value in values]
    return [path for one in found if one for path in one] if found and all(found) else None


def _of_a_parameter(
    name: str, function: ast.FunctionDef, script: Script, project: Project, depth: int
) -> list[str] | None:
    arguments = function.args.args
    at = [one.arg for one in arguments].index(name)
    first = len(arguments) - len(function.args.defaults)
    found: list[str] = []
    for one in project.scripts:
        for call in ast.walk(one.tree):
            if not isinstance(call, ast.Call) or dotted(call.func).rpartition(".")[2] != function.name:
                continue
            given = call.args[at] if len(call.args) > at else None
            given = given or next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
            given = given or (function.args.defaults[at - first] if at >= first else None)
            paths = _path(given, one, project, depth + 1) if given is not None else None
            if paths is None:
                return None
            found += paths
    return found or None


def _around(node: ast.expr, script: Script) -> ast.FunctionDef | None:
    held = [
        one
        for one in ast.walk(script.tree)
        if isinstance(one, FUNCTIONS) and one.lineno <= node.lineno <= (one.end_lineno or one.lineno)
    ]
    last = max(held, key=lambda one: one.lineno, default=None)
    return last if isinstance(last, ast.FunctionDef) else None


def is_file(file: str, path: str) -> bool:
    asked = PurePosixPath(path).parts
    own = PurePosixPath(file).parts
    asked = tuple(one for one in asked if one not in (".", "..", "/"))
    return bool(asked) and own[-len(asked) :] == asked


def _beside(config: ConfigFile, used: ConfigFile) -> bool:
    """Of the same folder and kind, with keys that the other has too."""
    if PurePosixPath(config.file).parent != PurePosixPath(used.file).parent or config.kind not in _KINDS:
        return False
    mine, theirs = _keys(config.values), _keys(used.values)
    return len(mine) > 1 and len(mine & theirs) >= 0.7 * len(mine)


def _keys(values: Mapping[str, object]) -> set[str]:
    """Of two levels."""
    found = {str(key) for key in values}
    return found | {f"{key}.{one}" for key, held in values.items() if isinstance(held, Mapping) for one in held}


_FREE = re.compile(
    r"\bby hand\b|\bmanual|\bnot used\b|\bunused\b|\bkept\b|\breference\b|\barchive|\btemplate\b|\bexample\b|\bcopy\b",
    re.I,
)


def _spoken_of(config: ConfigFile, project: Project) -> bool:
    """Its name stands in code, in a launcher or another configuration, or its head says why it is kept."""
    path = PurePosixPath(config.file)
    texts: Sequence[str] = [text for file, text in project.texts.items() if file != config.file]
    if any(path.name in text or f'/{path.stem}"' in text for text in texts):
        return True
    return any(_FREE.search(text) for line, text in config.comments.items() if line <= 10)
