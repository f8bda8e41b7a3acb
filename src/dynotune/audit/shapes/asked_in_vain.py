"""A document starts a launcher with a word, or a variable, that the launcher does not look at."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.elsewhere import commands_of_document

_WORD = r"(?:[A-Za-z0-9_][\w./=-]*|<\w[\w -]*>|\$\w+)"
_STOPS = frozenset({"and", "to", "on", "in", "for", "with", "from", "then", "or", "is", "as", "at", "which", "that"})
"""Words behind a file's name by which a sentence goes on."""

_OF_A_RUN = re.compile(
    r"(?:MODEL|CONFIG|CFG|DATA|DATASET|LR|LEARNING_RATE|EPOCHS?|STEPS|BATCH|BATCH_SIZE|BS|SEED|GPUS|NGPUS?|NUM_GPUS|NPROC"
    r"|NUM_PROCESSES|OUT|OUTPUT|OUTPUT_DIR|MAX_LEN|MAX_LENGTH|SEQ_LEN|STAGE|RANK_R|LORA_R|SIZE|NAME|RUN_NAME)"
)
"""Variables that no library reads by itself."""

_TAKES_IN = re.compile(r"^\s*(?:source|\.)\s", re.MULTILINE)
"""Another file, which may read them."""


def words_in_vain(launch: Launch, project: Project) -> Iterator[Said]:
    """Of a launcher that reads none of its arguments."""
    own = {word.removeprefix("./") for one in project.launches if one.file == launch.file for word in one.words}
    given = [
        (place, words)
        for place, _, words in _calls(launch.file, project)
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
    for place, variables, _ in _calls(launch.file, project):
        for name in variables:
            line = _set_anew(name, text)
            others = "\n".join((*project.texts.values(),))
            unheard = _OF_A_RUN.fullmatch(name) and not re.search(rf"\b{name}\b", others) and not _TAKES_IN.search(text)
            if not line and not unheard:
                continue
            why = f"sets `{name}` itself" if line else f"reads no `{name}`"
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


def _set_anew(name: str, text: str) -> int:
    """The line at which a launcher gives a variable a value of its own, before anything else speaks of it."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#") or not re.search(rf"\b{name}\b", line):
            continue
        found = re.match(rf"(?:export\s+|readonly\s+)?{name}=(?![^#]*\b{name}\b)\S", line)
        return number if found is not None else 0
    return 0


def _calls(file: str, project: Project) -> Iterator[tuple[Place, list[str], str]]:
    """Commands in documents that start this file: the variables in front of it, and the words behind it, without flags."""
    name = re.escape(PurePosixPath(file).name)
    path = rf"(?:\./)?(?:[\w.-]+/)*{name}"
    command = re.compile(
        rf"(?P<variables>(?:[A-Z][A-Z0-9_]*=\S*\s+)*)(?:(?:(?:bash|sh|zsh)(?:\s+-\w+)*|sbatch(?:\s+-\S+)*)\s+{path}|\./{path})"
        rf"(?P<words>(?:[ \t]+{_WORD})*)[ \t]*(?:$|#|[>|&;\\]|2>)"
    )
    for document, text in project.documents.items():
        lines = commands_of_document(text).split("\n")
        for number, (line, whole) in enumerate(zip(lines, text.split("\n"), strict=False), 1):
            spans = [line.strip()] if line.strip() else re.findall(r"`([^`\n]+)`", whole)
            for span in spans:
                found = command.match(span)
                words = found["words"].split() if found is not None else []
                if found is None or any(word in _STOPS for word in words):
                    continue
                variables = re.findall(r"([A-Z][A-Z0-9_]*)=", found["variables"])
                yield Place(document, number), variables, " ".join(words)
