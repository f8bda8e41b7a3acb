"""A document starts a launcher with a word, or a variable, that the launcher does not look at."""

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.elsewhere import commands_of_document

_WORD = r"(?:[A-Za-z0-9_][\w./=-]*|<\w[\w -]*>|\$\w+)"
_STOPS = frozenset({"and", "to", "on", "in", "for", "with", "from", "then", "or", "is", "as", "at", "which", "that"})
"""Words behind a file's name by which a sentence goes on."""

OF_A_RUN = re.compile(
    r"(?:MODEL|CONFIG|CFG|DATA|DATASET|LR|LEARNING_RATE|EPOCHS?|STEPS|BATCH|BATCH_SIZE|BS|SEED|GPUS|NGPUS?|NUM_GPUS|NPROC"
    r"|NUM_PROCESSES|OUT|OUTPUT|OUTPUT_DIR|MAX_LEN|MAX_LENGTH|SEQ_LEN|STAGE|RANK_R|LORA_R|SIZE|NAME|RUN_NAME)"
)
"""Variables that no library reads by itself."""

_TAKES_IN = re.compile(r"^\s*(?:source|\.)\s", re.MULTILINE)
"""Another file, which may read them."""

_BY_MADE_NAMES = re.compile(
    r"BaseSettings|env_prefix|auto_env|default_env|\benvirons\b|\bdecouple\b|\bdynaconf\b"
    r"|(?<!['\"] in )\bos\.environ\b(?!\s*(?:\[|\.(?:get|pop|setdefault|update)\())"
    r"|\b(?:getenv|environ\.(?:get|pop|setdefault))\(\s*(?!(?P<get>['\"])[^'\"\n]*(?P=get)\s*[,)])"
    r"|\benviron\[\s*(?!(?P<at>['\"])[^'\"\n]*(?P=at)\s*\])"
)
"""Sources that read variables whose names do not stand there."""

_FENCE = re.compile(r"^\s*(?:```|~~~)\s*(\w*)")
_ENTRY = re.compile(r"[\s│├└─|+`-]*(?:\./)?([\w./-]+)")
"""The first name of a line, as listings of folders draw it."""


def words_in_vain(launch: Launch, project: Project) -> Iterator[Said]:
    """Of a launcher that reads none of its arguments."""
    own = {word.removeprefix("./") for one in project.launches if one.file == launch.file for word in one.words}
    given = [
        (place, words)
        for place, _, words in calls_of(launch.file, project)
        if {word.removeprefix("./") for word in words.split()} - own  # else it runs what is asked for all the same
    ]
    if not given:
        return
    yield Finding(
        f"`{launch.file}` is given `{given[0][1]}`, and reads none of its arguments: the same runs as without.",
        place=launch.place,
        also=tuple(place for place, _ in given),
        evidence=Evidence(Level.TEXT, {"given": [words for _, words in given], "started": list(launch.configs)}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, 'Give the command `"$1"` in place of what it names itself, or mend the text.'),
    )


def variables_in_vain(launch: Launch, project: Project, text: str) -> Iterator[Said]:
    """Variables in front of the launcher: it sets them anew, or nothing of the project speaks of them."""
    others = "\n".join(project.texts.values())
    made = any(_BY_MADE_NAMES.search(code(one)) for one in project.scripts)
    for place, variables, _ in calls_of(launch.file, project):
        for name, value in variables.items():
            line, own = _set_anew(name, text)
            if line and own == value:
                continue  # what is asked for is what it does
            unheard = OF_A_RUN.fullmatch(name) and not re.search(rf"\b{name}\b", others) and not _TAKES_IN.search(text)
            if not line and (made or not unheard):
                continue
            why = f"it sets `{name}` itself" if line else "no file that was read speaks of it"
            yield Finding(
                f"`{launch.file}` is given `{name}` by `{place.file}`, and {why}: the same runs as without.",
                place=Place(launch.file, line) if line else launch.place,
                also=(place, launch.place),
                evidence=Evidence(Level.TEXT, {"variable": name}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL, f"Write `{name}=${{{name}:-...}}` in the launcher, or mend the document."
                ),
            )
            return


def _set_anew(name: str, text: str) -> tuple[int, str]:
    """The line at which a launcher gives a variable a value of its own, before anything else speaks of it; and the value."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#") or not re.search(rf"\b{name}\b", line):
            continue
        found = re.match(rf"(?:export\s+|readonly\s+)?{name}=(?![^#]*\b{name}\b)(\S+)", line)
        return (number, found[1].strip("\"';")) if found is not None else (0, "")
    return 0, ""


def calls_of(file: str, project: Project) -> Iterator[tuple[Place, dict[str, str], str]]:
    """Commands in documents that start this file: the variables in front of it, and the words behind it, without flags."""
    name = re.escape(PurePosixPath(file).name)
    path = rf"(?:\./)?(?:[\w.-]+/)*{name}"
    # One blank between words: more of them set columns of a listing apart.
    command = re.compile(
        rf"(?P<variables>(?:[A-Z][A-Z0-9_]*=\S*\s+)*)"
        rf"(?:(?:(?:bash|sh|zsh)(?:\s+-\w+)*|sbatch(?:\s+-\S+)*)\s+(?P<given>{path})|\./(?P<started>{path}))"
        rf"(?P<words>(?:[ \t]{_WORD})*)[ \t]*(?:$|#|[>|&;\\]|2>)"
    )
    files = frozenset(
        PurePosixPath(one).name for one in (*project.texts, *project.documents) if not one.endswith(".sh")
    )
    for document, written in project.documents.items():
        folder: str | None = None
        for number, (line, whole) in enumerate(_lines(written, files), 1):
            spans = [line.strip()] if line.strip() else re.findall(r"`([^`\n]+)`", whole)
            for span in spans:
                found = command.match(span)
                entered = re.findall(r"(?:^|[;&]\s*)(?:cd|pushd)\s+[\"']?([^\s;&\"']+)", span)
                folder = entered[-1] if entered else folder
                words = found["words"].split() if found is not None else []
                if found is None or any(word in _STOPS for word in words):
                    continue
                if not leads_to(found["given"] or found["started"], file, project, folder):
                    continue
                variables = dict(re.findall(r"([A-Z][A-Z0-9_]*)=(\S*)", found["variables"]))
                yield (
                    Place(document, number),
                    {one: value.strip("\"'") for one, value in variables.items()},
                    " ".join(words),
                )


def leads_to(path: str, file: str, project: Project, folder: str | None = None) -> bool:
    """Whether a document's path, behind a `cd` into this folder, is certainly this file's and no other's."""
    own, asked = PurePosixPath(file), PurePosixPath(path)
    entered = PurePosixPath(folder).name if folder is not None else ""
    if folder is not None and entered not in {PurePosixPath(project.root).name, own.parent.name} - {""}:
        return False
    if len(asked.parts) > 1:
        return own.parts[-len(asked.parts) :] == asked.parts
    return sum(PurePosixPath(one).name == own.name for one in project.texts) <= 1


@functools.lru_cache(256)
def _lines(written: str, files: frozenset[str]) -> Sequence[tuple[str, str]]:
    """Of a document, each line's command and the line: asked twice for each launcher."""
    text = _without_listings(written, files)
    return tuple(zip(commands_of_document(text).split("\n"), text.split("\n"), strict=False))


def _without_listings(text: str, files: frozenset[str]) -> str:
    """The text with blocks that are no commands left empty: those marked as text, and unmarked ones that list files."""
    lines = text.split("\n")
    opened: tuple[int, str] | None = None
    for number, line in enumerate(text.split("\n")):
        found = _FENCE.match(line)
        if found is None:
            continue
        if opened is None:
            opened = number, found[1].lower()
            continue
        start, kind = opened
        opened = None
        entries = [_ENTRY.match(one) for one in lines[start + 1 : number]]
        listed = any(one is not None and PurePosixPath(one[1]).name in files for one in entries)
        if kind == "text" or (not kind and listed):
            lines[start + 1 : number] = [""] * (number - start - 1)
    return "\n".join(lines)
