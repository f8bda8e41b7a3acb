"""A script imports a name that the pinned release of its package no longer has, or not yet."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.schema.came import BROUGHT, GONE
from dynotune.audit.schema.keys import earlier


def imports_that_are_gone(pinned: Sequence[Asked], project: Project) -> Iterator[Said]:
    names = dict.fromkeys([*GONE, *BROUGHT])
    for module, name in names:
        package = module.partition(".")[0]
        asked = [one for one in pinned if one.name == package]
        why, instead = _why(module, name, [one.version for one in asked])
        if not asked and (module, name) in GONE and (asked := _newest(package, project)):
            gone = GONE[module, name]
            why, instead = f"is gone from {package} {gone.since} on", f"{gone.text}, or ask for {package}<{gone.since}."
        if not why:
            continue
        newest = "" if asked[0].operator in ("==", "===") else ", which installs the newest"
        for script in project.scripts:
            for node in _imports(script, module, name):
                yield Finding(
                    f"`{name}` {why}, and {asked[0].place.file} asks for"
                    f" {package}{asked[0].operator}{asked[0].version}{newest}: the import stops the script.",
                    place=place_of(script, node),
                    evidence=Evidence(Level.TEXT, {package: asked[0].version, "why": why}),
                    stake=Stake(AtStake.STOPS),
                    remedy=Remedy(Risk.BEHAVIOURAL, instead, effort=Effort.MINUTES),
                    also=(asked[0].place,),
                )


def _newest(package: str, project: Project) -> list[Asked]:
    """What is asked for from a release on, or without any version, and with no other bound: the newest is installed."""
    if any(Path(project.root, name).exists() for name in _LOCKS):
        return []
    named = [one for one in project.asked if one.name == package and _LISTS.search(one.place.file)]
    whole = [one for one in project.asked if one.name == package]
    lines = [project.texts.get(one.place.file, "").split("\n")[one.place.line - 1 :][:1] for one in whole]
    bounded = any(re.search(r"[<~@]|!=|,\s*[>=]", line.partition("#")[0]) for held in lines for line in held)
    return named[:1] if named and {one.operator for one in whole} <= {">=", ">", ""} and not bounded else []


_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pixi.lock", "conda-lock.yml", "requirements.lock", "Pipfile.lock")
"""Files that say which release is installed, whatever the lists leave open."""

_LISTS = re.compile(r"(?:^|/)(?:requirements[^/]*\.txt|environment[^/]*\.ya?ml|pyproject\.toml)$")


def _why(module: str, name: str, versions: Sequence[str]) -> tuple[str, str]:
    """Why none of the releases that are asked for has the name, and what to do; empty where one may have it."""
    gone, last = GONE.get((module, name)), BROUGHT.get((module, name))
    package = module.partition(".")[0]
    if versions and gone is not None and not any(earlier(one, gone.since) for one in versions):
        return f"is gone from {package} {gone.since} on", f"{gone.text}."
    if versions and last is not None and all(one == last or earlier(one, last) for one in versions):
        return f"came with a release of {package} after {last}", f"Ask for a later {package}."
    return "", ""


def _imports(script: Script, module: str, name: str) -> Iterator[ast.AST]:
    """`from module import name`, and `module.name` where the module is imported; not where a failure is caught."""
    if name not in script.source:
        return
    caught = {
        id(part)
        for one in ast.walk(script.tree)
        if isinstance(one, ast.Try)
        for top in one.body
        for part in ast.walk(top)
    }
    for node in ast.walk(script.tree):
        if id(node) in caught:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == module and name in {one.name for one in node.names}:
            yield node
            continue
        owner = node.value if isinstance(node, ast.Attribute) and node.attr == name else None
        if isinstance(owner, ast.Name) and script.imports.get(owner.id) == module:
            yield node
