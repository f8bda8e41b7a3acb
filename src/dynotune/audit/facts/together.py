"""Which scripts of a project work together, by what they import from each other."""

import re
from collections.abc import Sequence

from dynotune.audit.facts.imports import name, parts
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script


def together(script: Script, project: Project) -> Sequence[Script]:
    """The script, those that it imports from, those that import from it, and what these import from: a collator's file, the
    file that trains with it, and the file that makes its tokenizer."""
    users = project.imports.users(script)
    every = {one.file: one for user in (script, *users) for one in (user, *imported(user, project))}
    return list(every.values())


def imported(script: Script, project: Project) -> Sequence[Script]:
    """The project's scripts that this one imports from."""
    return project.imports.of(script)


def reached(script: Script, project: Project) -> Sequence[Script]:
    """The script and all that is loaded with it, however far."""
    return project.imports.reached([script])


def connected(script: Script, project: Project) -> Sequence[Script]:
    """The program that a script is a part of: it, whatever imports it, however far, and whatever these import. Two programs
    that share a module are not one."""
    return project.imports.program(script)


def leads_out(scripts: Sequence[Script], project: Project) -> bool:
    """Whether one of them imports a file of its own package that was not read."""
    return any(
        dotted.startswith(".") and not project.imports.stems & set(dotted.lstrip(".").split("."))
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
    return name(other) in parts(script)
