"""A launcher divides a total batch by what one process takes, and starts several processes."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.counted_for_other_processes import command_of, is_accumulation, processes_of

_WORKS_OUT = re.compile(
    r"(?P<name>(?<![\w-])-{0,2}[A-Za-z_][\w-]{0,80})[=\s][\"']?(?:\$\(\(|\$\[|\$\(expr\s)\s?"
    r"(?P<total>\(?\s?\$?\{?\w{1,60}\}?)\s?/\s?(?P<each>\(?\s?\$?\{?\w{1,60}\}?\s?\)?)\s?\)?\s*(?:\)\)|\]|\))",
    re.IGNORECASE,
)
"""`ACCUM=$((GLOBAL_BATCH / MICRO))`, `--gradient_accumulation_steps $((256 / MICRO))`: one quotient, and nothing else."""

_TOTAL = re.compile(
    r"^(?!.*per_?(?:gpu|device|rank|proc))\w*(?:global|total|effective|target|desired|eff_)\w*$", re.IGNORECASE
)
_RANKS = re.compile(
    r"world_?size|num_processes|n_?gpus?\b|num_gpus|gpu|device|nproc|\branks\b|\bnodes\b|ntasks|\bprocs?\b|\bdp\b",
    re.IGNORECASE,
)
_DIVIDES = re.compile(
    r"(?:accum|grad_acc|\bgas\b)[^\n]{0,60}//?=?[^\n]{0,40}(?:world_?size|num_processes|device_count|n_?gpus?|num_replicas)",
    re.IGNORECASE,
)
_OF_ALL = re.compile(r"(?:^|_)(?:all|world|total|global|step|ranks)(?:_|$)", re.IGNORECASE)
"""What rows of all processes together are called."""

SMALLEST_TOTAL = 16
"""Of a total that stands as a number, and not by its name."""


def accumulation_without_ranks(launch: Launch, project: Project) -> Iterator[Said]:
    processes = processes_of(launch) or _of_the_job(launch, project)
    if processes is None or processes < 2:
        return
    lines, command = project.texts.get(launch.file, "").split("\n"), command_of(launch, project)
    values = dict(re.findall(r"^\s*(?:export\s+)?(\w+)=[\"']?([^\"'\n#]*)", "\n".join(lines), re.MULTILINE))
    for row, line in enumerate(lines[: launch.place.end_line or launch.place.line], 1):
        found = _WORKS_OUT.search(line) if not line.lstrip().startswith("#") else None
        name = found["name"].lstrip("-") if found is not None else ""
        if found is None or not is_accumulation(name, command) or not _is_passed(name, row, launch, project):
            continue
        total, each = (re.sub(r"\W", "", found[part]) for part in ("total", "each"))
        large = total.isdigit() and int(total) >= SMALLEST_TOTAL
        if not (large or _TOTAL.search(total)) or any(_speaks_of_ranks(one, values) for one in (total, each)):
            continue
        if _OF_ALL.search(each) or any(_multiplies(values.get(one, ""), processes, values) for one in (total, each)):
            continue
        if _is_changed(name, lines[row : launch.place.line]):
            continue
        if _divided_again(launch, project):
            return
        yield Finding(
            f"`{found[0].strip()}` makes one process come to the whole batch, and {processes} are started: a step holds"
            f" {processes} times the rows that were meant.",
            place=Place(launch.file, row),
            evidence=Evidence(Level.RESOLVED, {"accumulation": found[0].strip(), "processes": processes}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Divide by the processes as well: `$(({total} / ({each} * {processes})))`.",
                accuracy="Steps hold the rows that were meant; the learning rate may have been tuned to the others.",
                measure="Print the rows of a step: micro-batch x accumulation x processes.",
            ),
            also=(launch.place,),
        )
        return


def _is_passed(name: str, row: int, launch: Launch, project: Project) -> bool:
    """The command gets it: it stands in the command, or the command has the variable."""
    lines = project.texts.get(launch.file, "").split("\n")
    last = launch.place.end_line or launch.place.line
    command = "\n".join(lines[launch.place.line - 1 : last])
    return launch.place.line <= row <= last or re.search(rf"\$\{{?{re.escape(name)}\b", command) is not None


def _multiplies(given: str, processes: int, values: dict[str, str]) -> bool:
    """A value that is worked out with the number of processes, whatever that is called."""
    if not re.search(r"\$\(|\$\[|`", given):
        return False
    words = re.findall(r"\w+", given)
    return str(processes) in [*words, *(values.get(one, "").strip() for one in words)]


def _is_changed(name: str, lines: list[str]) -> bool:
    """Given a value once more between its first and the command: `ACCUM=$((ACCUM / 4))`."""
    given = re.compile(rf"^\s*(?:export\s+|let\s+[\"']?|\(\(\s*)?{re.escape(name)}\s*[-+*/]?=")
    return any(given.search(line) for line in lines)


def _speaks_of_ranks(name: str, values: dict[str, str], depth: int = 0) -> bool:
    """A variable that is worked out with the number of processes."""
    given = values.get(name, "")
    inner = set(re.findall(r"[A-Za-z_]\w*", given)) - {name}
    return bool(_RANKS.search(given)) or (depth < 4 and any(_speaks_of_ranks(one, values, depth + 1) for one in inner))


def _of_the_job(launch: Launch, project: Project) -> int | None:
    """Processes by a file of accelerate's."""
    counts = {
        number(job, "num_processes")
        for job in project.jobs
        if launch.file in job.files and launch.script in job.files and job.is_given("num_processes")
    }
    count = counts.pop() if len(counts) == 1 else None
    return int(count) if count else None


def _divided_again(launch: Launch, project: Project) -> bool:
    """The script divides what it gets by the processes itself."""
    script = next((one for one in project.scripts if one.file == launch.script), None)
    return script is None or any(_DIVIDES.search(code(one)) for one in connected(script, project))
