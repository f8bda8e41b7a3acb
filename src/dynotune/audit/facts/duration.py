"""How long a run takes, as the project's own texts say: comments, documents, a scheduler's limit."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import connected
from dynotune.audit.place import Place

_SAID = re.compile(
    r"(?<![\w.:])(?:\d{1,4}(?:\.\d)?\s{0,2}(?:to|-|\u2013)\s{0,2})?(\d{1,4}(?:\.\d)?)\s?-?(min(?:utes?|s)?|h(?:ours?|rs?)?|days?)\b",
    re.IGNORECASE,
)
_A_RUN = re.compile(
    r"\b(?:runs?|train(?:s|ed|ing)?|epochs?|takes|took|pretrain\w*|fine-?tun\w*|jobs?)\b", re.IGNORECASE
)
_ANOTHER = re.compile(
    r"install|build|download|prepar|tokeni[sz]|feature|encod|eval|compil|warm|export|convert|audio|speech|video|load|start-?up|queue"
    r"|old|before|was\b|instead|every|per\b|each|after|sav|checkpoint",
    re.IGNORECASE,
)
"""What else takes time, or comes again in it."""

_LIMIT = re.compile(
    r"^#(?:SBATCH\s+(?:--time|-t)|PBS\s+-l\s+\S*walltime|BSUB\s+-W|\$\s+-l\s+\S*h_rt)\s*[=\s]\s*"
    r"(?:(\d+)-)?(\d{1,4})(?::(\d\d))?(?::(\d\d))?",
    re.MULTILINE,
)
_HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0}


def hours_said(script: Script, project: Project) -> list[tuple[float, Place]]:
    """Of a run of the program that a script is a part of: by sentences of its own comments, of the files that start it,
    and of the documents, where the project has no other program."""
    near = connected(script, project)
    files = {one.file for one in near}
    found = [
        said
        for one in near
        for number, comment in one.comments.items()
        for said in _in_line(comment, Place(one.file, number))
    ]
    for file in sorted(_starting(files, project)):
        for number, line in enumerate(project.texts.get(file, "").split("\n"), 1):
            comment = re.search(r"(?:^|\s)#(?!SBATCH|PBS|BSUB|!)(.*)", line)
            found += _in_line(comment[1], Place(file, number)) if comment is not None else ()
    if all(launch.script in files for launch in project.launches if launch.script):
        for file, text in project.documents.items():
            found += [said for n, line in _paragraphs(text) for said in _in_line(line, Place(file, n))]
    return found


def hours_asked_for(script: Script, project: Project) -> tuple[float, Place] | None:
    """The scheduler's limit in the only job file that starts the program."""
    limits = []
    for file in sorted(_starting({one.file for one in connected(script, project)}, project)):
        text = project.texts.get(file, "")
        for found in _LIMIT.finditer(text):
            days, first, second, _seconds = (int(one or 0) for one in found.groups())
            # Slurm's "90" is minutes, "2-12" days and hours; LSF's "60:00" hours and minutes.
            whole = found[1] is not None or found[4] is not None or "BSUB" in found[0]
            hours = days * 24 + (
                first + second / 60 if whole else (first * 60 + second) / 3600 if found[3] else first / 60
            )
            limits.append((hours, Place(file, text.count("\n", 0, found.start()) + 1)))
    return limits[0] if len(limits) == 1 else None


def _starting(files: set[str], project: Project) -> set[str]:
    return {launch.file for launch in project.launches if launch.script in files}


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Sentences, over the lines that they are broken in, each with the line of its first word."""
    start, held = 0, ""
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip() and not line.lstrip().startswith(("#", "|", "-", "*", "```")):
            start, held = (start, f"{held} {line.strip()}") if held else (number, line.strip())
            continue
        if held:
            yield from ((start, part) for part in re.split(r"(?<=[.;!?])\s", held))
        held = ""
        if line.strip():
            yield number, line


def _in_line(text: str, place: Place) -> Sequence[tuple[float, Place]]:
    if not _A_RUN.search(text) or _ANOTHER.search(text):
        return ()
    return [(float(found[1]) * _HOURS[found[2][0].lower()], place) for found in _SAID.finditer(text)]
