"""Which scripts of a project work together, by what they import from each other."""

import functools
import re
from collections.abc import Callable, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script


def together(script: Script, project: Project) -> Sequence[Script]:
    """The script, those that it imports from, those that import from it, and what these import from: a collator's file, the
    file that trains with it, and the file that makes its tokenizer."""
    users = [one for one in project.scripts if one.file != script.file and imports_from(one, script)]
    every = {one.file: one for user in (script, *users) for one in (user, *imported(user, project))}
    return list(every.values())


def imported(script: Script, project: Project) -> Sequence[Script]:
    """The project's scripts that this one imports from."""
    return [one for one in project.scripts if one.file != script.file and imports_from(script, one)]


def reached(script: Script, project: Project) -> Sequence[Script]:
    """The script and all that is loaded with it, however far."""
    return _closure([script], imports_from, project)


def connected(script: Script, project: Project) -> Sequence[Script]:
    """The program that a script is a part of: it, whatever imports it, however far, and whatever these import. Two programs
    that share a module are not one."""
    users = _closure([script], lambda one, other: imports_from(other, one), project)
    return _closure(users, imports_from, project)


def _closure(start: Sequence[Script], leads: Callable[[Script, Script], bool], project: Project) -> Sequence[Script]:
    found = {one.file: one for one in start}
    frontier = list(start)
    while frontier and len(found) < MOST:
        one = frontier.pop()
        new = [other for other in project.scripts if other.file not in found and leads(one, other)]
        found |= {other.file: other for other in new}
        frontier += new
    return list(found.values())


MOST = 200
"""Scripts that belong to one program; a repository of more is many programs that share a library."""


def leads_out(scripts: Sequence[Script], project: Project) -> bool:
    """Whether one of them imports a file of its own package that was not read."""
    stems = {part for one in project.scripts for part in one.file.removesuffix(".py").split("/")}
    return any(
        dotted.startswith(".") and not stems & set(dotted.lstrip(".").split("."))
        for one in scripts
        for dotted in one.imports.values()
    )


def code(script: Script) -> str:
    """The source without its comments, line by line."""
    lines = script.source.split("\n")
    for number, comment in script.comments.items():
        if 0 < number <= len(lines) and comment:
            lines[number - 1] = re.sub(r"#\s*" + re.escape(comment.strip()) + r"\s*$", "", lines[number - 1])
    return "\n".join(lines)


def imports_from(script: Script, other: Script) -> bool:
    """Whether a name of its imports may lead to the other file."""
    return other.file.rpartition("/")[2].removesuffix(".py") in _parts(tuple(script.imports.values()))


@functools.lru_cache(maxsize=4096)
def _parts(imports: tuple[str, ...]) -> frozenset[str]:
    """The names that dotted ones are made of."""
    return frozenset(part for dotted in imports for part in dotted.lstrip(".").split("."))
