"""A launcher keeps flags, or an argument of its own, in a variable that no command of it gets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from dynotune.audit.facts.launch import SHELL, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.asked_in_vain import OF_A_RUN, leads_to, variables_in_vain, words_in_vain
from dynotune.audit.shapes.variables_of_make_in_vain import names_a_setting

_SETS = re.compile(
    r"^[ \t]*(?:local[ \t]+|readonly[ \t]+|declare[ \t]+-a[ \t]+)?([A-Za-z_]\w*)="
    r"(\((?:[^()]|\$\([^()]*\)){0,4000}\)|\"(?:[^\"\\]|\\.){0,4000}\"|'[^']{0,4000}'|[^\s;&|()\"']*)[ \t]*(?:#[^\n]*)?$",
    re.MULTILINE | re.DOTALL,
)
"""A line that only assigns: a word, a text in quotes or a list, none of it exported."""

_FLAGS = re.compile(r"\s*--[a-z][\w-]*", re.IGNORECASE)
_ARGUMENT = re.compile(r"\$(?:([1-9])|\{([1-9])(?:[:?=-][^{}]*)?\})")
_OWN_DEFAULT = re.compile(r"\$\{(\w+):?[-=][^{}]*\}")
_NUMBER = re.compile(r"\d[\d._]*(?:e-?\d+)?")
_SPEAKS = re.compile(r"^\s*(?:echo|printf|log\w*|logger)\b[^|>]*$")
_NAMES_UNSEEN = re.compile(r"\$\{!|(?:^|[\s;&|(])eval\s+[\"'$]|\bcompgen\b|\benvsubst\b|^\s*set\s+-\w*a", re.MULTILINE)
"""Ways in which a variable may be used whose name does not stand there."""

_TAKES_IN = re.compile(r"^\s*(?:source|\.)\s+\S*?([\w.-]+)[\"']?\s*$", re.MULTILINE)
_HEARS = re.compile(
    r"\$[@*#1-9]|\$\{[@*#1-9]|\bgetopts?\b|\bshift\b|\$\{?(?:BASH_ARGV|argv)|\bfor[ \t]+\w+[ \t]*(?:;|do\b|$)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Kept:
    name: str
    value: str
    line: int


def variables_that_nothing_gets(launch: Launch, project: Project) -> Iterator[Said]:
    first = next((one for one in project.launches if one.file == launch.file), None)
    text = project.texts.get(launch.file, "")
    if first is not launch or not any(launch.file.endswith(end) for end in SHELL) or _NAMES_UNSEEN.search(text):
        return
    shared = _shared(launch.file, text, project)
    for kept in _unused(text):
        if re.search(rf"\b{kept.name}\b", shared):
            continue
        if _FLAGS.match(kept.value):
            yield _of_flags(launch, kept)
        elif _ARGUMENT.fullmatch(kept.value):
            yield _of_an_argument(launch, kept, project)
        elif _is_a_setting(kept) or names_a_setting(kept.value, launch, project):
            yield _of_a_setting(launch, kept)
    if not _HEARS.search(_without_comments(text)):
        yield from words_in_vain(launch, project)
    yield from variables_in_vain(launch, project, text)


def _unused(text: str) -> Iterator[_Kept]:
    """Variables that are assigned in one line, and whose names stand nowhere else but in what is shown."""
    for found in _SETS.finditer(text):
        if text[: found.start()].rstrip(" \t").endswith("\\\n"):
            continue  # the rest of a command
        rest = text[: found.start()] + text[found.end() :]
        lines = [line for line in rest.split("\n") if not line.lstrip().startswith("#") and not _SPEAKS.match(line)]
        if not re.search(rf"\b{found[1]}\b", "\n".join(lines)):
            value = found[2].strip().strip("()\"'").strip()
            yield _Kept(found[1], value.lstrip("\"'"), text.count("\n", 0, found.start(1)) + 1)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))


def _shared(file: str, text: str, project: Project) -> str:
    """Files that take this one in, and those that it takes in."""
    own = PurePosixPath(file).name
    taken = set(_TAKES_IN.findall(text))
    found = [
        held
        for name, held in project.texts.items()
        if name != file and (PurePosixPath(name).name in taken or own in _TAKES_IN.findall(held))
    ]
    return "\n".join(found)


def _of_flags(launch: Launch, kept: _Kept) -> Finding:
    flags = list(dict.fromkeys(re.findall(r"--[A-Za-z][\w-]*", kept.value)))
    shown = ", ".join(f"`{flag}`" for flag in flags[:3])
    return Finding(
        f"`{kept.name}` holds {shown}, and no command of `{launch.file}` gets it: what is started runs without.",
        place=Place(launch.file, kept.line),
        also=(launch.place,),
        evidence=Evidence(Level.TEXT, {"variable": kept.name, "flags": flags}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, f"Add `${kept.name}` to the command, or take it out."),
    )


def _of_an_argument(launch: Launch, kept: _Kept, project: Project) -> Finding:
    return Finding(
        f"`{launch.file}` takes its argument into `{kept.name}`, and no command gets it: whatever is given, the same runs.",
        place=launch.place,
        also=(Place(launch.file, kept.line), *(place for place, _ in _calls_of(launch.file, project))),
        evidence=Evidence(Level.TEXT, {"variable": kept.name, "value": kept.value}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, f'Write `"${kept.name}"` where the command has a value of its own.'),
    )


def _is_a_setting(kept: _Kept) -> bool:
    return bool(OF_A_RUN.fullmatch(kept.name) and (_OWN_DEFAULT.fullmatch(kept.value) or _NUMBER.fullmatch(kept.value)))


def _of_a_setting(launch: Launch, kept: _Kept) -> Finding:
    """`EPOCHS=${EPOCHS:-3}`, and what is started has its number from elsewhere."""
    return Finding(
        f"`{launch.file}` sets `{kept.name}` and no command of it gets it: whatever it is, the same runs.",
        place=Place(launch.file, kept.line),
        also=(launch.place,),
        evidence=Evidence(Level.TEXT, {"variable": kept.name, "value": kept.value}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.BEHAVIOURAL, f'Write `"${kept.name}"` where the command has a value of its own, or take it out.'
        ),
    )


def _calls_of(file: str, project: Project) -> list[tuple[Place, str]]:
    """Where documents start this file with an argument, and the argument."""
    name = re.escape(PurePosixPath(file).name)
    command = re.compile(rf"(?:^|[\s`/])(?:(?:bash|sh|sbatch|source)\s+|\./)((?:[\w./-]*/)?{name})\s+([\w./-]+)")
    return [
        (Place(document, number), found[2])
        for document, text in project.documents.items()
        for number, line in enumerate(text.split("\n"), 1)
        if (found := command.search(line)) is not None and not found[2].startswith("-")
        if leads_to(found[1], file, project)
    ]
