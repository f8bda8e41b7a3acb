"""CFG007: the configuration says one thing, and the command that runs it another."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import GivenKey, Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.replaced_after_loading import replaced_after_loading, replaced_by_words

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nlearning_rate: {}\n"
_OF_A_RUN = frozenset({"output_dir", "run_name", "logging_dir", "seed", "resume_from_checkpoint", "report_to"})
"""What commands set for one run, as a rule on purpose."""


def check(job: Job, project: Project) -> Iterator[Said]:
    said: set[tuple[str, int, str]] = set()
    for one in _of_flags(job, project):
        if isinstance(one, Finding):
            said.add((one.place.file, one.place.line, one.place.key.rpartition(".")[2]))
        yield one
    if project.jobs[0] is job:
        for one in (*replaced_after_loading(project), *replaced_by_words(project)):
            if (
                isinstance(one, Finding)
                and (one.place.file, one.place.line, one.place.key.rpartition(".")[2]) not in said
            ):
                yield one


def _one_of_a_row(key: GivenKey, before: GivenKey, job: Job, project: Project) -> bool:
    """Another command of the same file runs the configuration as it is: this one is a trial, or one of a row of runs."""
    others = [
        one for one in project.jobs if one is not job and key.place.file in one.files and before.place.file in one.files
    ]
    return any(
        one.get(key.name) == before.value and (one.get("max_steps") or -1) < 1 for one in others
    )  # no trial itself


def _of_flags(job: Job, project: Project) -> Iterator[Said]:
    first: dict[str, GivenKey] = {}
    for key in job.given:
        before = first.setdefault(key.name, key)
        differs = before.place.file != key.place.file and before.value != key.value
        if (
            not differs
            or key.name in _OF_A_RUN
            or _said_so(key, project)
            or isinstance(key.value, Unknown)
            or isinstance(before.value, Unknown)
            or _one_of_a_row(key, before, job, project)
        ):
            continue
        if job.trainer is Trainer.LLAMA_FACTORY and key.place.key.startswith("-"):
            continue  # refused there, and replaces nothing
        yield Finding(
            f"`{key.name}` is `{key.value}` in this run: the command's flag replaces the configuration's `{before.value}`.",
            place=before.place,
            also=(key.place,),
            evidence=Evidence(Level.RESOLVED, {"configuration": before.value, "command": key.value}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.OPERATIONAL, "Say it in one place."),
        )


_COMPARES = re.compile(
    r"\b(?:ya?ml|config\w*|default|file)\b|\boverrid|\binstead\b|\b(?:low|high|small|larg|short|long)er\b|\bmore\b|\bless\b",
    re.IGNORECASE,
)

_OF_THE_REST = re.compile(
    r"\b(?:everything|all|anything)\b(?: else)?[^;]{0,60}\b(?:is|are|comes?|stands?|from|in)\b", re.IGNORECASE
)
"""Of a comment that sends the reader to the configuration: `everything else is in the yaml`."""


def _said_so(key: GivenKey, project: Project) -> bool:
    """A comment on the flag's line, or on the lines above its command, speaks of the other value."""
    lines = lines_of(project.texts.get(key.place.file, ""))
    at = key.place.line - 1
    if not 0 <= at < len(lines):
        return False
    above = at
    while above > 0 and lines[above - 1].rstrip().endswith("\\"):
        above -= 1
    said = [lines[at].partition(" #")[2]]
    while above > 0 and lines[above - 1].lstrip().startswith("#"):
        above -= 1
        said.append(lines[above])
    return any(_COMPARES.search(one) and not _OF_THE_REST.search(one) for one in said)


RULE = Rule(
    code="CFG007",
    name="overridden-by-the-launcher",
    summary="A launcher's flag replaces a value of the configuration that it names.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Flags win over the file. The file then documents a run that does not take place.",
        why="Who compares configurations compares the wrong values; who starts the file by hand gets another run.",
        detected="E1: the same key in the file and on the command line with different values, both known; not where"
        " a comment at the flag or above the command speaks of it, nor where another command of the same launcher runs the"
        " file as it is. Words with a path (`--set data.max_length=1024`), and constants that a program puts into what it"
        " has loaded, count as flags.",
        proven="The resolved configuration that the run writes has the flag's value.",
        deliberate=("A sweep, or a trial run, which is what flags are for.",),
        sources=("TRL's `TrlParser`: the file gives defaults, flags replace them",),
    ),
    bad=Example(
        {
            "run.sh": "trl sft --config sft.yaml --learning_rate 3e-4\n",
            "sft.yaml": _SFT.format("1.0e-5"),
        },
        says="replaces the configuration's `1e-05`",
    ),
    good=Example({"run.sh": "trl sft --config sft.yaml --output_dir out\n", "sft.yaml": _SFT.format("3.0e-4")}),
)
