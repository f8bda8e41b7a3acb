"""A Makefile has a variable of the run, or a document gives it one, that no command of it gets."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.asked_in_vain import OF_A_RUN

_SETS = re.compile(r"^(?:override\s+|export\s+)*([A-Z][A-Z0-9_]*)\s*(?:\?|::?)?=\s*([^\n#]*)", re.MULTILINE)
_NAMES_UNSEEN = re.compile(
    r"\$[({]\$|\$[({](?:call|eval|foreach|value|origin)\b|^\s*-?include\s+[^\n]*\$", re.MULTILINE
)
"""Ways in which a variable may be used whose name does not stand there."""

_SPEAKS = re.compile(r"^\s*@?-?(?:echo|printf)\b[^|>]*$|^\s*\$\((?:info|warning)\b")
_MAKE = re.compile(
    r"(?:^|[\s`;&])(?P<before>(?:[A-Z][A-Z0-9_]*=\S+\s+)*)make\b(?P<rest>(?:[ \t]+-\S+|[ \t]+[a-z][\w.-]*"
    r"|[ \t]+[A-Z][A-Z0-9_]*=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s`]+))+)"
)
_GOALS = re.compile(r"^([\w.%/-]+(?:[ \t]+[\w.%/-]+)*)[ \t]*::?(?!=)", re.MULTILINE)
_GIVEN = re.compile(r"([A-Z][A-Z0-9_]*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s`]+)")


@dataclass(frozen=True, slots=True)
class _Given:
    value: str
    place: Place


def variables_of_make_in_vain(launch: Launch, project: Project) -> Iterator[Said]:
    if not is_makefile(launch.file) or next(one for one in project.launches if one.file == launch.file) is not launch:
        return
    text = project.texts.get(launch.file, "")
    makefiles = [held for file, held in project.texts.items() if is_makefile(file)]
    if not text or any(map(_NAMES_UNSEEN.search, makefiles)):
        return
    others = "\n".join(held for file, held in project.texts.items() if not is_makefile(file))
    set_here = {found[1]: text.count("\n", 0, found.start()) + 1 for found in _SETS.finditer(text)}
    given = _given_by_documents(project, text) if len(makefiles) == 1 else {}
    for name in dict.fromkeys((*set_here, *given)):
        told, line = given.get(name), set_here.get(name)
        of_a_run = OF_A_RUN.fullmatch(name) or (
            line is not None and names_a_setting(_value(text, line), launch, project)
        )
        if not of_a_run or re.search(rf"\b{name}\b", others) or _is_used(name, makefiles):
            continue
        if told is not None and line is not None and _value(text, line) == told.value:
            told = None  # what is asked for stands in the default
        yield Finding(
            f"`{told.place.file}` gives make `{name}={told.value}`, and no command of `{launch.file}` gets it: the same"
            " runs as without."
            if told is not None
            else f"`{name}` is set in `{launch.file}`, and no command of it gets it: whatever it is, the same runs.",
            place=Place(launch.file, line) if line is not None else launch.place,
            also=(launch.place, *((told.place,) if told is not None else ())),
            evidence=Evidence(Level.TEXT, {"variable": name, "used by": 0}),
            stake=Stake(AtStake.RESULT if told is not None else AtStake.CLARITY),
            remedy=Remedy(
                Risk.BEHAVIOURAL, f"Write `$({name})` where the command has a value of its own, or take it out."
            ),
        )


def names_a_setting(value: str, launch: Launch, project: Project) -> bool:
    """Whether it is a configuration of the project: `DS := configs/zero2.json`."""
    named = posixpath.normpath(value.strip("\"'"))
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(launch.file), named))
    files = {config.file for config in project.configs}
    return bool(value) and bool({named, beside} & files)


def is_makefile(file: str) -> bool:
    name = PurePosixPath(file).name
    return name in ("Makefile", "makefile", "GNUmakefile") or name.endswith(".mk")


def _is_used(name: str, makefiles: list[str]) -> bool:
    """Any mention of it but where it is set, shown, exported or commented on: what reads exported ones is another file."""
    mention = re.compile(rf"\b{name}\b")
    for text in makefiles:
        for line in text.split("\n"):
            said = line.partition("#")[0] if not line.startswith("\t") else line
            if said.lstrip().startswith("#") or _SPEAKS.match(said):
                continue
            found = _SETS.match(said)
            rest = found[2] if found is not None and found[1] == name else said
            if mention.search(rest) and not re.match(rf"\s*export\s+{name}\s*$", said):
                return True
    return False


def _value(text: str, line: int) -> str:
    found = _SETS.match(text.split("\n")[line - 1])
    return found[2].strip() if found is not None else ""


def _given_by_documents(project: Project, makefile: str) -> Mapping[str, _Given]:
    """By commands whose words are goals of this file: `make sure` is none."""
    found: dict[str, _Given] = {}
    goals = {goal for names in _GOALS.findall(makefile) for goal in names.split()}
    for file, document in project.documents.items():
        for number, line in enumerate(document.split("\n"), 1):
            for command in _MAKE.finditer(line):
                words = {word for word in command["rest"].split() if "=" not in word and not word.startswith("-")}
                if words - goals:
                    continue
                for name, value in _GIVEN.findall(command["before"] + command["rest"]):
                    found.setdefault(name, _Given(value.strip("\"'"), Place(file, number)))
    return found
