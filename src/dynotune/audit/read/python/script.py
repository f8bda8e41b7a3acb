"""A Python file, or a notebook, as facts."""

import ast
from collections.abc import Mapping
from pathlib import Path

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python.calls import calls
from dynotune.audit.read.python.commands import commands
from dynotune.audit.read.python.declared import fields, flags, switches
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.module import Module
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.source import comments, parsed
from dynotune.audit.read.python.value import setting

MOST_CONSTANTS = 2000


def read_script(
    path: Path,
    text: str,
    root: Path,
    modules: Modules | None = None,
    configs: Mapping[str, ConfigFile] | None = None,
) -> Script:
    """Never raises for any text; what could not be read is in `unread`. Of a notebook (by its suffix) `source` is its code
    cells, which places count lines in.

    modules, configs: of the project, where there is one. They may still fill: arguments of calls are followed into them when
    a rule asks.
    """
    file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    read = parsed(text, notebook=path.suffix == ".ipynb")
    module = Module(file, read.text, read.tree)
    modules = Modules() if modules is None else modules
    modules[file] = module
    return Script(
        file,
        read.text,
        read.tree,
        calls(module, Evaluator(module, modules, {} if configs is None else configs)),
        dict(module.imports),
        comments(read.text) if not read.why else {},
        _constants(module, Evaluator(module, Modules(), {})),
        (read.why,) if read.why else (),
    )


def _constants(module: Module, evaluator: Evaluator) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, bindings in list(module.top.bindings.items())[:MOST_CONSTANTS]:
        last = bindings[-1]
        if last.kind in ("value", "augment") and last.node is not None:
            made = setting(name, evaluator.fresh().of_module(name), module.place(last.node, name))
            if made.is_known:
                found[name] = made
    stored = switches(module)
    for name, value in flags(evaluator.fresh()).items():
        place = value.via[0] if value.via else module.place(module.tree)
        bare = stored.get(place.key)
        found[place.key or f"--{name}"] = setting(name, value, place, given_as=place.key, given_value=bare)
    for scope in list(module.scopes.values()):
        if isinstance(scope.node, ast.ClassDef) and _is_dataclass(scope.node):
            for name, value in fields(evaluator.fresh(), scope).items():
                place = value.via[0] if value.via else module.place(scope.node)
                found.setdefault(f"--{name}", setting(name, value, place))
    for parameters in commands(module).values():
        for name, one in parameters.items():
            if one.default is not None:
                value = evaluator.fresh().value(one.default, module.top)
                found.setdefault(one.flag, setting(name, value, module.place(one.at, one.flag), given_as=one.flag))
    return found


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
