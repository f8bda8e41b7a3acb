"""A run that is to go on looks for its checkpoint in a folder whose name has the time in it, and is new at every start."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_LOOKS = re.compile(r"\bget_last_checkpoint\(\s*(?:str\()?([\w.]+)")
_LISTS = re.compile(r"\bglob\(|\brglob\(|\blistdir\(|\biterdir\(|\bscandir\(")
_LOADS = re.compile(r"\btorch\.load\(|\bload_state\(|\bresume_from_checkpoint=|\bload_checkpoint\(|\bckpt_path=")
_TIME = re.compile(
    r"strftime\(|\.now\(|time\.time\(|isoformat\(|\bctime\(|\buuid[14]\(|\btoken_hex\(|\bwandb\.run\.(?:id|name)\b"
)
_OF_HYDRA = re.compile(r"runtime\.output_dir|to_absolute_path\([\"']\.")
_NOW = re.compile(r"^\s+dir:\s*\S*\$\{now:")
_DIR = re.compile(r"^\s+dir:\s*\S")
_GOES_ON = re.compile(
    r"\bresum|\bpick(?:s|ed)? up\b|\b(?:goes|go|carries|carry) on\b|\bcontinue[sd]?\b|\bsame command\b", re.IGNORECASE
)
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
    for folder, at in _looked_in(source, script, project):
        looks = Place(script.file, source.count("\n", 0, at) + 1)
        held = _given(folder, source) or _of_an_option(folder, source, script, project)
        if held is not None and _TIME.search(held[0]):
            yield _finding(Place(script.file, held[1]), (looks,), held[0].strip())
            return
        place = Place(script.file, held[1]) if held is not None and _OF_HYDRA.search(held[0]) else None
        place = place or (_entry_of_hydra(folder, project) if "hydra" in source else None)
        if place is not None and (missing := _without_a_folder(script, folder, project)) is not None:
            yield from _of_hydra(project, looks, place, missing)
            return


def _looked_in(source: str, script: Script, project: Project) -> Iterator[tuple[str, int]]:
    """Folders in which a file looks for what it goes on from, as it calls them, and where in the file it does."""
    if (found := _LOOKS.search(source)) is not None:
        yield found[1], found.start()
        return
    if _LOADS.search(source) is None:
        return
    finders = {
        node.name
        for one in reached(script, project)
        if _LISTS.search(one.source)
        for node in one.tree.body
        if isinstance(node, ast.FunctionDef) and node.args.args and _LISTS.search(ast.unparse(node))
    }
    for found in re.finditer(
        r"^[ \t]*(\w+)[ \t]*=[ \t]*(\w+)\((?:Path\(|str\()?([A-Za-z_][\w.]*)\b", source, re.MULTILINE
    ):
        if found[2] in finders and re.search(rf"(?:{_LOADS.pattern})[^\n]*\b{found[1]}\b", source):
            yield found[3], found.start(1)


def _entry_of_hydra(name: str, project: Project) -> Place | None:
    """`run_dir: ${hydra:runtime.output_dir}`, which a script reads as `cfg.run_dir`."""
    base, _, key = name.rpartition(".")
    if not base:
        return None
    entry = re.compile(rf"\s*{re.escape(key)}:\s*[\"']?\S*\$\{{(?:hydra:run(?:time\.output_dir|\.dir)|now:)")
    for config in project.configs:
        for number, line in enumerate(lines_of(project.texts.get(config.file, "")), 1):
            if entry.match(line):
                return Place(config.file, number)
    return None


def _without_a_folder(script: Script, folder: str, project: Project) -> tuple[Place, ...] | None:
    """Commands that leave the folder to Hydra; None: none does. Where some give one, a document has to say of all that
    they go on."""
    gives = re.compile(rf"{_RUN_DIR.pattern}|(?<![\w-])\+*(?:\w+\.)*{re.escape(folder.rpartition('.')[2])}=")
    starts = [one for one in project.launches if one.script == script.file]
    lacking = [one for one in starts if not gives.search(" ".join(one.words))]
    if not starts:
        return () if not any(gives.search(" ".join(one.words)) for one in project.launches) else None
    said = any(_GOES_ON.search(text) for text in project.documents.values())
    if not lacking or (len(lacking) < len(starts) and not said):
        return None
    return tuple(one.place for one in lacking[:1])


def _of_hydra(project: Project, looks: Place, place: Place, commands: tuple[Place, ...]) -> Iterator[Said]:
    own = lines_of(project.texts.get(place.file, ""))[place.line - 1] if place.line else ""
    if "${now:" in own:
        yield _finding(place, (looks, *commands), own.strip())
        return
    told = False
    for config in project.configs:
        lines = lines_of(project.texts.get(config.file, ""))
        timed = next((number for number, line in enumerate(lines, 1) if _NOW.search(line)), 0)
        told = told or any(_DIR.match(line) for line in lines if "hydra" in config.values)
        if timed and "hydra" in config.values:
            yield _finding(Place(config.file, timed), (looks, place, *commands), lines[timed - 1].strip())
            return
    if not told:
        default = "outputs/${now:%Y-%m-%d}/${now:%H-%M-%S}, Hydra's default"
        yield _finding(place, (looks, *commands), default)


def _of_an_option(name: str, source: str, script: Script, project: Project) -> tuple[str, int] | None:
    """The default of a parser's option, which no command replaces."""
    option = name.rpartition(".")[2]
    held = re.search(rf"add_argument\(\s*[\"']--{option.replace('_', '[-_]')}[\"'][^\n]*\bdefault=([^\n]+)", source)
    starts = [one for one in project.launches if one.script == script.file]
    if held is None or "." not in name or not starts:
        return None
    flag = re.compile(rf"--{option.replace('_', '[-_]')}\b")
    if any(flag.search(" ".join(one.words)) for one in starts):
        return None
    return held[1], source.count("\n", 0, held.start(1)) + 1


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
    by_file = any(
        config.values.get("auto_resume_from_checkpoints") is True and "auto_resume_from_checkpoints" not in launch.flags
        for config in project.configs
        if config.file in launch.configs
    )
    script = next((one for one in project.scripts if one.file == launch.script), None)
    looks = script is not None and re.search(r"get_last_checkpoint\(\s*[\w.]*output_dir", script.source)
    if not looks and not by_file and (asked is None or asked.value not in (True, "auto", "latest", "last")):
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
        elif _OF_ONE_JOB.search(told) and not _GIVEN.search(told) and (again := _submitted_again(launch, project)):
            yield _of_a_job(Place(launch.file, at), (again, launch.place), lines[at - 1].strip())


_OF_ONE_JOB = re.compile(r"\$\{?(?:SLURM_JOB_?ID|PBS_JOBID|LSB_JOBID|JOB_ID|RANDOM)\b|\$\$")
_AGAIN = re.compile(
    r"\b(?:re-?submit\w*|re-?queue\w*|submit\w*|sbatch|qsub|start\w*|run|launch\w*)\b[^.;]{0,60}\bagain\b|\bre-?submit",
    re.IGNORECASE,
)


def _submitted_again(launch: Launch, project: Project) -> Place | None:
    """Where a document says that the job is submitted anew and goes on: as a requeued one it would keep its number."""
    if "--requeue" in project.texts.get(launch.file, "") or "--dependency" in project.texts.get(launch.file, ""):
        return None
    for file, text in project.documents.items():
        for number, line in enumerate(text.split("\n"), 1):
            if _AGAIN.search(line) and _GOES_ON.search(line):
                return Place(file, number)
    return None


def _of_a_job(place: Place, also: tuple[Place, ...], text: str) -> Finding:
    found = _finding(place, also, text)
    return replace(
        found,
        message=f"The folder's name has the job's number in it (`{text[:80]}`): a job that is submitted again has"
        " another one, finds no checkpoint, and begins at the first row.",
        remedy=replace(found.remedy, text="Name the folder after the run (`runs/$SLURM_JOB_NAME`), not after the job."),
    )


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
            "Name the folder after the run, not after the hour (`hydra.run.dir: outputs/${run_name}`), or give it"
            " when the"
            " run is started again.",
            measure="Kill it after a save and start it again: the step goes on.",
        ),
    )
