"""A run that is to go on looks for its checkpoint in a folder whose name has the time in it, and is new at every start."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_LOOKS = re.compile(r"\bget_last_checkpoint\(\s*(?:str\()?([\w.]+)")
_TIME = re.compile(r"strftime\(|\.now\(|time\.time\(|isoformat\(|\bctime\(")
_OF_HYDRA = re.compile(r"runtime\.output_dir|to_absolute_path\([\"']\.")
_NOW = re.compile(r"^\s+dir:\s*\S*\$\{now:")
_RUN_DIR = re.compile(r"\bhydra\.run\.dir=|\bhydra\.sweep\.dir=")
_DATE = re.compile(r"\$\(\s*date\b|`date\b")
_GIVEN = re.compile(r"\$\{\w+:?[-=]")
"""`${OUT:-runs/$(date)}`: who starts it again may give the folder of before."""


def folder_of_the_hour(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _of_a_script(script, project)
    for launch in project.launches:
        yield from _of_a_launch(launch, project)


def _of_a_script(script: Script, project: Project) -> Iterator[Said]:
    source = code(script)
    found = _LOOKS.search(source)
    held = _given(found[1], source) if found is not None else None
    if found is None or held is None:
        return
    text, place = held[0], Place(script.file, held[1])
    looks = Place(script.file, source.count("\n", 0, found.start()) + 1)
    if _TIME.search(text):
        yield _finding(place, (looks,), text.strip())
    elif _OF_HYDRA.search(text) and not any(_RUN_DIR.search(" ".join(one.words)) for one in project.launches):
        for config in project.configs:
            lines = project.texts.get(config.file, "").split("\n")
            timed = next((number for number, line in enumerate(lines, 1) if _NOW.search(line)), 0)
            if timed and "hydra" in config.values:
                yield _finding(Place(config.file, timed), (looks, place), lines[timed - 1].strip())


def _given(name: str, source: str, depth: int = 0) -> tuple[str, int] | None:
    """What a file gives a folder's name, and at which line; None: several things, or nothing that is seen."""
    last = name.rpartition(".")[2]
    pattern = (
        rf"\b{re.escape(last)}\s*=\s*(?!=)([^\n]+)" if "." in name else rf"^\s*{re.escape(name)}\s*=\s*(?!=)([^\n]+)"
    )
    found = list(re.finditer(pattern, source, re.MULTILINE))
    if len(found) != 1:
        return None
    text = found[0][1]
    for part in re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r"[\w.]+\(", "", text)) if depth < 3 else ():
        inner = _given(part, source, depth + 1)
        if inner is not None and (_TIME.search(inner[0]) or _OF_HYDRA.search(inner[0])):
            return inner
    return text, source.count("\n", 0, found[0].start(1)) + 1


def _of_a_launch(launch: Launch, project: Project) -> Iterator[Said]:
    """The command's own folder, and the same command resumes."""
    asked = launch.flags.get("resume_from_checkpoint") or launch.flags.get("auto_resume_from_checkpoints")
    script = next((one for one in project.scripts if one.file == launch.script), None)
    looks = script is not None and re.search(r"get_last_checkpoint\(\s*[\w.]*output_dir", script.source)
    if not looks and (asked is None or asked.value not in (True, "auto", "latest", "last")):
        return
    lines = project.texts.get(launch.file, "").split("\n")
    for number in range(launch.place.line, (launch.place.end_line or launch.place.line) + 1):
        line = lines[number - 1] if number <= len(lines) else ""
        found = re.search(r"--output[-_]dir[ =]+(\"[^\"]*\"|\S+(?: \+\S+\))?)", line)
        if found is None:
            continue
        told, at = found[1], number
        for name in re.findall(r"\$\{?(\w+)", told):
            set_at = [row for row, one in enumerate(lines, 1) if re.match(rf"\s*(?:export )?{name}=", one)]
            if len(set_at) == 1:
                told, at = told + lines[set_at[0] - 1], set_at[0]
        if _DATE.search(told) and not _GIVEN.search(told):
            yield _finding(Place(launch.file, at), (launch.place,), lines[at - 1].strip())


def _finding(place: Place, also: tuple[Place, ...], text: str) -> Finding:
    return Finding(
        f"The folder's name has the time in it (`{text[:80]}`): at the next start it is another one, no checkpoint is"
        " found in it, and training begins at the first row.",
        place=place,
        also=also,
        evidence=Evidence(Level.TEXT, {"folder": text}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Name the folder after the run, not after the hour (`hydra.run.dir: outputs/${run_name}`), or give it when the"
            " run is started again.",
            measure="Kill it after a save and start it again: the step goes on.",
        ),
    )
