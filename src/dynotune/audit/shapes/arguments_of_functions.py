"""A function of a shell script is called with flags, and hands none of them on to what it starts."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import SHELL, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+)?([A-Za-z_][\w-]*)[ \t]*(?:\([ \t]*\))?[ \t]*\{[ \t]*(?:#.*)?$")
_ALL = re.compile(
    r"\$[@*]|\$\{[@*]|\bgetopts?\b|\bwhile\b|\bcase\b|\$\{!|\$#|\bBASH_ARGV\b|\$\{\d+:?[-+]"
    r"|^[ \t]*for[ \t]+\w+[ \t]*;?[ \t]*(?:do)?$",
    re.MULTILINE,
)
"""Ways in which a function may use words that it does not number."""

_NUMBER = re.compile(r"\$(?:(\d)|\{(\d+)[^}]*\})")


def arguments_of_functions(launch: Launch, project: Project) -> Iterator[Said]:
    first = next((one for one in project.launches if one.file == launch.file), None)
    text = project.texts.get(launch.file, "")
    if first is not launch or not launch.file.endswith(tuple(SHELL)):
        return
    lines = text.replace("\\\n", "  \n").split("\n")
    for name, start, end in _functions(lines):
        body = "\n".join(line for line in lines[start + 1 : end] if not line.lstrip().startswith("#"))
        started = [one for one in project.launches if one.file == launch.file and start < one.place.line - 1 < end]
        if not started or _ALL.search(body):
            continue
        shifts = sum(int(found or 1) for found in re.findall(r"\bshift\b[ \t]*(\d*)", body))
        taken = max([int(one or two) for one, two in _NUMBER.findall(body)], default=0) + shifts
        if shifts and not re.search(r"\bshift\b[\s\S]*\$\{?\d", body):
            taken = max([int(one or two) for one, two in _NUMBER.findall(body)], default=0)
        lost = []
        for number, line in enumerate(lines):
            call = re.match(rf"[ \t]*{re.escape(name)}[ \t]+(\S.*)$", line) if not start <= number <= end else None
            words = re.findall(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+", re.split(r"\s#|[;|&]", call[1])[0]) if call else []
            if any(word.startswith("--") for word in words[taken:]):
                lost.append((number + 1, words[taken:]))
        if lost:
            shown = ", ".join(
                dict.fromkeys(f"`{word}`" for _, words in lost for word in words if word.startswith("--"))
            )
            yield Finding(
                f"`{name}` of `{launch.file}` is called with {shown}, and hands nothing behind its first"
                f" {f'{taken} words' if taken > 1 else 'word'} on: what it starts runs without.",
                place=started[0].place,
                also=tuple(Place(launch.file, number) for number, _ in lost),
                evidence=Evidence(
                    Level.TEXT, {"function": name, "lost": [word for _, words in lost for word in words]}
                ),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(Risk.BEHAVIOURAL, 'Write `"$@"` at the end of its command.'),
            )


def _functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name, first and last line, by the brace that closes it at its own indentation."""
    for number, line in enumerate(lines):
        found = _FUNCTION.match(line)
        if found is None or found[1] in ("if", "then", "else", "do"):
            continue
        indent = len(line) - len(line.lstrip())
        end = next(
            (at for at in range(number + 1, len(lines)) if re.match(rf"[ \t]{{{indent}}}\}}", lines[at])), len(lines)
        )
        yield found[1], number, end
