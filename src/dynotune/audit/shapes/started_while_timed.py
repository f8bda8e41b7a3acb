"""A clock around a whole command, or a run's own time, makes a speed: start, loading and compilation are in it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.clocks import speed_since, start_of
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_BEGINS = re.compile(
    r"^\s*(?P<name>\w+)=(?:\$\(date \+%s(?:\.%N)?\)|`date \+%s`|\$SECONDS\b)|^\s*(?P<reset>SECONDS)=0\b"
)
_TRAINS = re.compile(
    r"\b(?:python3?|torchrun|accelerate launch|deepspeed|trl|axolotl|llamafactory-cli|srun)\b[^#\n]*\S"
)
_WARM = re.compile(r"warm(?!up_(?:steps|ratio))|--skip|first", re.IGNORECASE)
_UNIT = re.compile(
    r"tok\w*\s?/\s?s|(?:samples|rows|it|its|steps|images|sequences)\s?/\s?s|per[ _]s(?:ec)?|throughput", re.IGNORECASE
)
FEW = 300
"""Steps of a run of which what comes before the first one is a part that is seen."""


def timed_by_a_shell(project: Project) -> Iterator[tuple[Place, Place]]:
    """`START=$(date +%s)`, a command that trains, and a quotient by the difference: where it is made, and the start."""
    for file, text in project.texts.items():
        if file.endswith((".py", ".ipynb", ".json", ".yaml", ".yml")) or (
            "date +%s" not in text and "SECONDS" not in text
        ):
            continue
        lines = list(lines_of(text))
        started: dict[str, int] = {}
        trained = 0
        for at, line in enumerate(lines, 1):
            begun = _BEGINS.match(line)
            if begun is not None and not trained:
                started[begun["name"] or begun["reset"]] = at
            elif started and _TRAINS.search(line) and not re.search(r"\bpython3? -c\b|bc\b", line):
                trained = trained or at
            near = f"{line} {lines[at] if at < len(lines) else ''}"
            used = [name for name in started if re.search(rf"\b{name}\b", near)]
            if trained and at > trained and re.search(r"/ ?\(|/ ?\$|/ ?\w", line) and _UNIT.search(near):
                taken = used or [
                    name for name in started if any(re.search(rf"\b{name}\b", one) for one in lines[trained:at])
                ]
                if taken and not _WARM.search(text):
                    yield Place(file, at), Place(file, started[taken[0]])
                    return


_STARTS = re.compile(r"^subprocess\.(?:run|check_call|call|check_output)$|^os\.system$")


def timed_around_a_process(script: Script) -> Iterator[tuple[Place, Place]]:
    """`t = time.time(); subprocess.run(["torchrun", ...]); print(steps / (time.time() - t))`."""
    lines = [line.partition("  #")[0] for line in script.source.split("\n")]
    for call in script.calls:
        if not _STARTS.match(call.name):
            continue
        for at in range(max(call.place.line - 4, 1), call.place.line):
            name = start_of(lines[at - 1])
            end = min(call.place.end_line + 12, len(lines))
            read = speed_since(lines, call.place.end_line, end, re.escape(name)) if name else 0
            if read and not _WARM.search(script.source):
                yield Place(script.file, read, 1, read, len(lines[read - 1]) + 1), Place(script.file, at)
                return


_OF_THE_RUN = re.compile(r"train_(?:samples|steps|tokens)_per_second|[\"']train_runtime[\"']")


def of_a_short_compiled_run(script: Script, project: Project) -> Iterator[tuple[Place, Place]]:
    """The trainer's own figure of a run of few steps that compiles: its time begins before the first one."""
    found = next((at for at, line in enumerate(lines_of(script.source), 1) if _OF_THE_RUN.search(line)), 0)
    if not found:
        return
    for job in project.jobs:
        steps = number(job, "max_steps") or 0
        if script.file in job.files and job.get("torch_compile") is True and 0 < steps <= FEW:
            yield Place(script.file, found), job.place("torch_compile")
            return
