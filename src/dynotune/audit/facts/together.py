"""Which scripts of a project work together, by what they import from each other."""

import re
from collections.abc import Sequence

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


def code(script: Script) -> str:
    """The source without its comments, line by line."""
    lines = script.source.split("\n")
    for number, comment in script.comments.items():
        if 0 < number <= len(lines) and comment:
            lines[number - 1] = re.sub(r"#\s*" + re.escape(comment.strip()) + r"\s*$", "", lines[number - 1])
    return "\n".join(lines)


def imports_from(script: Script, other: Script) -> bool:
    """Whether a name of its imports may lead to the other file."""
    stem = other.file.rpartition("/")[2].removesuffix(".py")
    return any(stem in dotted.lstrip(".").split(".") for dotted in script.imports.values())
