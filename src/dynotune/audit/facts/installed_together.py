"""Which of a project's lists of packages are installed into one environment."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from dynotune.audit.facts.project import Asked, Project

_LIST = re.compile(r"(?:^|\s)(?:-r|-c|--requirement|--constraint)[ =]?[\"']?([^\s\"'&|;]+\.txt)")
_OF_CONDA = re.compile(
    r"\b(?:conda|mamba|micromamba)\s+(?:env\s+)?(?:create|update|install)\b[^\n]*?(?:-f|--file)[ =](\S+\.ya?ml)"
)
_OWN = re.compile(r"\b(?:pip3?|uv pip)\s+install\b[^\n&|;]*?\s[\"']?\.(?:\[[\w,\s.-]*\])?[\"']?(?=\s|$)")
"""`pip install -e .`, which installs what `pyproject.toml` names."""

_MADE = re.compile(
    r"\bpython[\d.]*\s+-m\s+venv\b|\bvirtualenv\s+\S|\buv\s+venv\b|\b(?:conda|mamba|micromamba)\s+(?:env\s+)?create\b|^FROM\s",
    re.MULTILINE,
)
_ENTERED = re.compile(
    r"(?:\bsource|(?:^|[\s&;])\.)\s+(\S+/activate)\b|\b(?:conda|mamba)\s+activate\s+(\S+)|\s-n\s+(\S+)\s+pip"
)
_BY = re.compile(r"(?:^|[\s;&|(])(\S*?)(?:pip3?(?:\.\d+)?|uv pip)\s+install\b")
_CHOOSES = re.compile(
    r"^\s*(?:else|elif|case|esac)\b|\b(?:either|or else|alternatively|instead)\b|^\s*#*\s*or:?\s*$", re.MULTILINE
)
_TARGET = re.compile(r"(?m)^(?=[A-Za-z][\w.-]*(?:[ \t]+[\w.-]+)*[ \t]*:(?!=))")
_BY_TARGETS = re.compile(r"(?:^|/)(?:GNU|[^/]*\.)?(?:[Mm]akefile|[Jj]ustfile|mk)$")


def installed_together(project: Project) -> Callable[[Asked, Asked], bool]:
    """Whether two packages come into one environment: of one file, of a file and the list that it takes in, or of lists
    and commands that one script, image or document installs one after the other. What makes several environments, or
    chooses between ways, says nothing of two files; nor do files that pin a package differently."""
    files = {one.place.file for one in project.asked}
    lists = {file: set(_named(file, project.texts.get(file, ""), files)) for file in files if file.endswith(".txt")}
    groups = [frozenset({file, *held}) for file, held in ((file, _reached(file, lists)) for file in lists) if held]
    for file, text in {**project.documents, **project.texts}.items():
        if file in lists or ("install" not in text and "create" not in text and "update" not in text):
            continue
        for part in _TARGET.split(text) if _BY_TARGETS.search(file) else [text]:
            named = set(_named(file, part, files))
            if named and _one_environment(part):
                own = {file} if part is text else set()
                groups.append(frozenset(own | named | {two for one in named for two in _reached(one, lists)}))
    pins = _pins(project)

    def together(one: Asked, beside: Asked) -> bool:
        first, second = one.place.file, beside.place.file
        if first == second:
            return True
        return any(
            {first, second} <= group and all(_agree(name, group, pins) for name in (one.name, beside.name))
            for group in groups
        )

    return together


def _named(file: str, text: str, files: set[str]) -> Iterator[str]:
    """Lists that a text takes in, as far as the project has one of that name alone or at that place."""
    bare = "\n".join(re.split(r"(?:^|\s)#", line)[0] for line in text.split("\n")).replace("\\\n", " ")
    found = [one[1] for regular in (_LIST, _OF_CONDA) for one in regular.finditer(bare)]
    for name in found:
        here = posixpath.normpath(posixpath.join(posixpath.dirname(file), name))
        near = [one for one in (here, posixpath.normpath(name)) if one in files]
        same = near or [one for one in files if posixpath.basename(one) == posixpath.basename(name)]
        if near or len(same) == 1:
            yield same[0]
    if "pyproject.toml" in files and _OWN.search(bare):
        yield "pyproject.toml"


def _reached(file: str, lists: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [file]
    while waiting:
        for one in lists.get(waiting.pop(), ()):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


def _one_environment(text: str) -> bool:
    entered = {next(name for name in one if name) for one in _ENTERED.findall(text)}
    by = set(_BY.findall(text))
    return len(_MADE.findall(text)) < 2 and len(entered) < 2 and len(by) < 2 and not _CHOOSES.search(text)


def _pins(project: Project) -> Mapping[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for one in project.asked:
        if one.operator in ("==", "==="):
            found.setdefault((one.place.file, one.name), set()).add(one.version)
    return found


def _agree(name: str, group: frozenset[str], pins: Mapping[tuple[str, str], set[str]]) -> bool:
    return len({version for file in group for version in pins.get((file, name), ())}) < 2
