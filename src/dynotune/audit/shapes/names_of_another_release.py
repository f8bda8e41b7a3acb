"""A script imports a name that the release which the project asks for does not have, or no longer."""

import ast
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.schema.came import BROUGHT, GONE
from dynotune.audit.schema.keys import earlier


def names_of_another_release(project: Project) -> Iterator[Said]:
    asked = {one.name: one for one in project.asked if project.pinned(one.name) and one.operator in ("==", "===")}
    for script in project.scripts:
        for package, name, node in _imports(script):
            pin = asked.get(package)
            why, text = _said(package, name, pin.version) if pin is not None else ("", "")
            if pin is not None and why:
                yield _finding(script, node, name, pin, why, text)


def _said(package: str, name: str, version: str) -> tuple[str, str]:
    """Why the release does not have it, and what to do; empty where it has, or it is not known."""
    gone, last = GONE.get((package, name)), BROUGHT.get((package, name))
    if gone is not None and not earlier(version, gone.since) and _is_version(version):
        return f"it is gone since {gone.since}", f"{gone.text}."
    if last is not None and not earlier(last, version) and _is_version(version):
        return f"it came after {last}", f"Ask for a later {package}."
    return "", ""


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _imports(script: Script) -> Iterator[tuple[str, str, ast.ImportFrom]]:
    """Names that are imported from a package itself, under no condition and with nothing to catch that they are not there."""
    for room in (script.tree, *(node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef))):
        for node in room.body:
            if isinstance(node, ast.ImportFrom) and not node.level:
                yield from ((node.module or "", alias.name, node) for alias in node.names)


def _finding(script: Script, node: ast.ImportFrom, name: str, pin: Asked, why: str, text: str) -> Finding:
    return Finding(
        f"`{name}` cannot be imported from {pin.name} {pin.version}, which `{pin.place.file}` asks for: {why}.",
        place=place_of(script, node),
        also=(pin.place,),
        evidence=Evidence(Level.TEXT, {"name": name, pin.name: pin.version}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, text, effort=Effort.MINUTES),
    )
