"""A program, or the words of its command, puts another value in the place of one that its configuration has."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.loaded_by_name import is_file, loading, names_opened

_OF_A_RUN = re.compile(
    r"(?:.*\.)?(?:\w*output\w*|\w*out|run_?name|name|\w*dir|\w*path|\w*file|seed|resume\w*|report_to|tag|device|debug)"
)
"""What commands and programs set for one run, as a rule on purpose."""

_WORD = re.compile(r"(?:--)?([A-Za-z_]\w*(?:\.\w+)+)=([^$`{}*]+)")


def replaced_after_loading(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        for name, config, there in _loaded(script, project):
            for path, value, node in _puts(name, there, script):
                before = _at(config, path)
                if _differs(before, value) and not _OF_A_RUN.fullmatch(".".join(path)):
                    yield _finding(
                        config, path, before, value, place_of(script, node), f"`{script.file}` puts in its place"
                    )


def replaced_by_words(project: Project) -> Iterator[Said]:
    """`--set data.max_length=1024`, of a program that takes such words over what it loads."""
    for launch in project.launches:
        for config in project.configs:
            if config.file not in launch.configs or config.kind == "hydra" or not launch.script:
                continue
            for word in launch.behind:
                found = _WORD.fullmatch(word)
                path = found[1].split(".") if found else []
                before = _at(config, path) if found else None
                if found is None or not _differs_from_text(before, found[2]) or _OF_A_RUN.fullmatch(found[1]):
                    continue
                if _others_without(launch, found[1], config, project):
                    continue
                yield _finding(
                    config, path, before, found[2], _line_of(launch, word, project), "the command puts in its place"
                )


def _others_without(launch: Launch, name: str, config: ConfigFile, project: Project) -> bool:
    """Another command runs the file as it is, or with another value: a row of runs, and the file is the first of them."""
    others = [one for one in project.launches if one is not launch and config.file in one.configs]
    own = [word for word in launch.behind if word.lstrip("-").startswith(f"{name}=")]
    return any(own != [word for word in one.behind if word.lstrip("-").startswith(f"{name}=")] for one in others)


def _line_of(launch: Launch, word: str, project: Project) -> Place:
    lines = project.texts.get(launch.file, "").split("\n")
    last = launch.place.end_line or launch.place.line
    at = next((row for row in range(launch.place.line, last + 1) if row <= len(lines) and word in lines[row - 1]), 0)
    return Place(launch.file, at or launch.place.line, key=word.partition("=")[0])


def _loaded(script: Script, project: Project) -> Iterator[tuple[str, ConfigFile, ast.Assign]]:
    """Names of the file's own level or of a function's that a configuration is loaded into, once."""
    calls = list(loading(script))
    assigned = [node for node in ast.walk(script.tree) if isinstance(node, ast.Assign)]
    for node in assigned:
        target = node.targets[0]
        call = next((one for one in calls if node.value is one), None)
        if call is None or not isinstance(target, ast.Name) or len(node.targets) != 1:
            continue
        same = [one for one in assigned if any(isinstance(at, ast.Name) and at.id == target.id for at in one.targets)]
        paths = names_opened(call, script, project) or []
        found = [one for one in project.configs if any(is_file(one.file, path) for path in paths)]
        if len(same) == len(paths) == len(found) == 1:
            yield target.id, found[0], node


def _puts(name: str, loaded: ast.Assign, script: Script) -> Iterator[tuple[Sequence[str], object, ast.AST]]:
    """Constants that are put into it in the same block, behind it: whatever happens."""
    for body in _blocks(script.tree):
        if loaded not in body:
            continue
        for node in body[body.index(loaded) + 1 :]:
            match node:
                case ast.Assign(targets=[ast.Subscript() as target], value=ast.Constant(value=value)):
                    path = _path(target, name)
                    if path:
                        yield path, value, node
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=held, attr="update"), args=given, keywords=keywords)
                ):
                    path = [] if isinstance(held, ast.Name) and held.id == name else _path(held, name)
                    if path or (isinstance(held, ast.Name) and held.id == name):
                        yield from _updates(path, given, keywords, node)


def _updates(
    path: Sequence[str], given: Sequence[ast.expr], keywords: Sequence[ast.keyword], node: ast.AST
) -> Iterator[tuple[Sequence[str], object, ast.AST]]:
    for one in keywords:
        if one.arg and isinstance(one.value, ast.Constant):
            yield [*path, one.arg], one.value.value, node
    if given and isinstance(given[0], ast.Dict):
        for key, value in zip(given[0].keys, given[0].values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                yield [*path, str(key.value)], value.value, node


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.With):
            yield node.body


def _path(node: ast.expr, name: str) -> list[str]:
    """`cfg["train"]["lr"]`."""
    path: list[str] = []
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        path.insert(0, str(node.slice.value))
        node = node.value
    return path if isinstance(node, ast.Name) and node.id == name else []


def _at(config: ConfigFile, path: Sequence[str]) -> object:
    held: object = config.values
    for key in path:
        held = held.get(key) if isinstance(held, Mapping) else None
    return held


def _differs(before: object, value: object) -> bool:
    plain = int | float | str | bool
    return isinstance(before, plain) and isinstance(value, plain) and not _differs_not(before, value)


def _differs_not(before: object, value: object) -> bool:
    return before == value or _number(before) == _number(value) is not None


def _differs_from_text(before: object, text: str) -> bool:
    if isinstance(before, bool):
        return text.lower() != str(before).lower()
    return isinstance(before, int | float | str) and str(before) != text and not _differs_not(before, text)


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _finding(config: ConfigFile, path: Sequence[str], before: object, value: object, place: Place, how: str) -> Finding:
    name = ".".join(path)
    return Finding(
        f"`{name}` is `{value}` in this run: {how} of the configuration's `{before}`.",
        place=config.places.get(name, Place(config.file, key=name)),
        also=(place,),
        evidence=Evidence(Level.RESOLVED, {"configuration": before, "run": value}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.OPERATIONAL, "Say it in one place."),
    )
