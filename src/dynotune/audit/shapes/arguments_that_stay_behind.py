"""A launcher's function, or a launcher that another one calls, is given more arguments than it looks at."""

import re
import shlex
from collections.abc import Iterator

from dynotune.audit.facts.launch import SHELL, Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+)?([A-Za-z_][\w-]*)[ \t]*\(\)[ \t]*\{[ \t]*$")
_HEARS_ALL = re.compile(
    r"\$[@*#]|\$\{[@*#]|\bgetopts?\b|\bshift\b|\bset\s+--|BASH_ARGV|\$\{!|\beval\b|^\s*(?:source|\.)\s", re.MULTILINE
)
_STARTS = re.compile(r"\b(?:python3?|torchrun|accelerate|deepspeed|trl|axolotl|llamafactory-cli|srun)\b")
_NUMBERED = re.compile(r"\$(\d)|\$\{(\d+)")
_BEFORE = r"(?:^|[;&|]|\bdo\b|\bthen\b|\belse\b)[ \t]*(?:[A-Z_][A-Z0-9_]*=\S*[ \t]+)*"
_ENDS = re.compile(r"\s(?:#|\d?>|<|\|\||&&|[|;&])|[;|&]")


def arguments_that_stay_behind(launch: Launch, project: Project) -> Iterator[Said]:
    first = next((one for one in project.launches if one.file == launch.file), None)
    if first is not launch or not launch.file.endswith(tuple(SHELL)):
        return
    lines = [_code(line) for line in lines_of(project.texts.get(launch.file, ""))]
    in_functions: set[int] = set()
    for name, begin, end in _functions(lines):
        in_functions |= set(range(begin, end + 1))
        body = "\n".join(lines[begin : end - 1])
        if not _STARTS.search(body):
            continue
        command = re.compile(rf"{_BEFORE}{re.escape(name)}[ \t]+(?!\()(.*)$")
        calls = [
            (Place(launch.file, number), found[1])
            for number, line in enumerate(_joined(lines), 1)
            if not begin <= number <= end and (found := command.search(line)) is not None
        ]
        yield from _of_calls(f"`{name}`", Place(launch.file, begin), body, calls)
    base = re.escape(launch.file.rpartition("/")[2])
    if sum(file.rpartition("/")[2] == launch.file.rpartition("/")[2] for file in project.texts) > 1:
        return  # which of them is called, is not told here
    command = re.compile(
        rf"{_BEFORE}(?:(?:bash|sh|source|sbatch)[ \t]+(?:-\S+[ \t]+)*)?(?:\./|[\w./-]*/)?{base}[ \t]+(.*)$"
    )
    calls = [
        (Place(file, number), found[1])
        for file, other in project.texts.items()
        if file != launch.file and _is_of_commands(file) and launch.file.rpartition("/")[2] in other
        for number, line in enumerate(_joined([_code(one) for one in lines_of(other)]), 1)
        if (found := command.search(line.lstrip("@-\t "))) is not None
    ]
    rest = "\n".join(line for number, line in enumerate(lines, 1) if number not in in_functions)
    yield from _of_calls(f"`{launch.file}`", launch.place, rest, calls)


def _of_calls(called: str, at: Place, body: str, calls: list[tuple[Place, str]]) -> Iterator[Said]:
    if _HEARS_ALL.search(body):
        return
    most = max((int(one[0] or one[1]) for one in _NUMBERED.findall(body)), default=0)
    lost = [(place, words[most:]) for place, told in calls if len(words := _words(told)) > most]
    if not lost:
        return
    shown = " ".join(lost[0][1])[:60]
    looks = f"looks at the first {most} alone" if most > 1 else "looks at the first alone" if most else "reads none"
    yield Finding(
        f"{called} is given `{shown}` among its arguments, and {looks}: what is started runs without it.",
        place=at,
        also=tuple(place for place, _ in lost),
        evidence=Evidence(Level.TEXT, {"given": shown, "read": most}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            (f"Take the first {most} off (`shift {most}`) and give" if most else "Give")
            + ' the rest on to the command: `"$@"`; or take them out of the call.',
        ),
    )


def _functions(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Functions of a shell script: the name, and the numbers of the first and the last line."""
    begun: tuple[str, int] | None = None
    for number, line in enumerate(lines, 1):
        if begun is None and (found := _FUNCTION.match(line)) is not None:
            begun = found[1], number
        elif begun is not None and line.startswith("}"):
            yield *begun, number
            begun = None


def _joined(lines: list[str]) -> Iterator[str]:
    """Each line with what stands behind its backslash; lines that another one takes are empty."""
    held, empty = "", 0
    for line in lines:
        if line.rstrip().endswith("\\"):
            held, empty = held + line.rstrip()[:-1] + " ", empty + 1
            continue
        if empty:
            yield held + line
            yield from [""] * empty
            held, empty = "", 0
        else:
            yield line


def _words(told: str) -> list[str]:
    if (end := _ENDS.search(f"{told} ")) is not None:
        told = told[: end.start()]
    try:
        return shlex.split(told)
    except ValueError:
        return []


def _code(line: str) -> str:
    return "" if line.lstrip().startswith("#") else re.sub(r"\s#\s.*$", "", line)


def _is_of_commands(file: str) -> bool:
    name = file.rpartition("/")[2].lower()
    return file.endswith(tuple(SHELL)) or name in ("makefile", "gnumakefile") or name.endswith(".mk")
