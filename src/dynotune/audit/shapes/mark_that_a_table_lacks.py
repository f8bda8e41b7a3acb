"""Answers are looked for by a mark out of a table, and a key that the table lacks leaves all labels as they are."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_MASKS = re.compile(r"label\w*\[[^\n=]*\] = [^\n]*(?:-100|IGNORE)|label\w* = [^\n]*(?:-100|IGNORE)")
_WHOLE = re.compile(
    r"label\w*['\"\]]* = (?:list\(|torch\.tensor\(|copy\.\w+\()?[\w.\[\]'\"]*(?:ids|tokens)\b[\w.\[\]'\"():]*\s*$",
    re.MULTILINE,
)


def mark_that_a_table_lacks(script: Script, project: Project) -> Iterator[Said]:
    if ".get(" not in script.source or ("-100" not in script.source and "IGNORE" not in script.source):
        return
    tables = {
        ast.unparse(node.targets[0]): node.value
        for node in script.tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Dict)
    }
    looked_up = {
        node.targets[0].id: (node, tables[ast.unparse(node.value.func.value)], node.value.args[0])
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "get"
        and ast.unparse(node.value.func.value) in tables
        and _gives_nothing(node.value)
    }
    for name, (given, table, key) in looked_up.items():
        if re.search(rf"\b(?:assert {name}\b|if not {name}\b|if {name} is None)", script.source):
            continue
        where = _masked_only_with(name, script)
        known = {one.value for one in table.keys if isinstance(one, ast.Constant)}
        asked = _asked(key, script, project)
        if where is None or not known or (asked is not None and asked[0] in known):
            continue
        if asked is None and re.search(r"\bchoices\s*=", script.source):
            continue
        which = f"`{asked[0]}`, which is asked for, is not in it" if asked is not None else "a key that is not in it"
        yield Finding(
            f"The mark by which prompts are masked is looked up in a table that gives None for what it lacks"
            f" ({which}), and then nothing is masked: the loss is on the prompt as well, and nothing is said.",
            place=place_of(script, where),
            also=(place_of(script, given), *((asked[1],) if asked is not None else ())),
            evidence=Evidence(Level.TEXT, {"table": sorted(map(str, known)), "asked": asked[0] if asked else None}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Look it up by `[{ast.unparse(key)}]`, which stops where the key is missing"
                + (f", and put `{asked[0]}` into the table." if asked is not None else "."),
                effort=Effort.LINE,
                accuracy="Loss on answers alone, as the script means.",
                measure="Print the labels of one row that are not -100.",
            ),
        )
        return


def _gives_nothing(call: ast.Call) -> bool:
    """Where the key is missing."""
    return len(call.args) == 1 or (isinstance(call.args[1], ast.Constant) and not call.args[1].value)


def _masked_only_with(name: str, script: Script) -> ast.AST | None:
    for function in ast.walk(script.tree):
        text = ast.unparse(function) if isinstance(function, ast.FunctionDef) else ""
        if not _MASKS.search(text) or not _WHOLE.search(text):
            continue
        for node in ast.walk(function):
            alone = isinstance(node, ast.If) and not node.orelse
            if alone and isinstance(node, ast.If) and ast.unparse(node.test) in (name, f"{name} is not None"):
                if not _MASKS.search("\n".join(map(ast.unparse, node.body))):
                    continue
                return node
    return None


def _asked(key: ast.expr, script: Script, project: Project) -> tuple[object, Place] | None:
    """The key's value: of a configuration or an option that has the name, where all agree."""
    if isinstance(key, ast.Constant):
        return key.value, place_of(script, key)
    name = (
        str(key.slice.value)
        if isinstance(key, ast.Subscript) and isinstance(key.slice, ast.Constant)
        else key.attr
        if isinstance(key, ast.Attribute)
        else key.id
        if isinstance(key, ast.Name)
        else ""
    )
    if not name:
        return None
    flag = script.constants.get(f"--{name}") or script.constants.get(name)
    given = [(one.flags[name].value, one.place) for one in project.launches if name in one.flags]
    held = given or [(value, place) for config in project.configs for value, place in _values(config, name)]
    if not held and flag is not None and flag.is_known:
        held = [(flag.value, flag.place)]
    return held[0] if held and len({str(value) for value, _ in held}) == 1 else None


def _values(config: ConfigFile, name: str) -> Iterator[tuple[object, Place]]:
    for path, place in config.places.items():
        if path.rpartition(".")[2] == name:
            yield config.at(path), place
