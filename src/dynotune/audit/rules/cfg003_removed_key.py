"""CFG003: a key that the trainer's version no longer has."""

from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Fate, Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
_NEEDS_NOTHING = ("emove it", "always saved")
"""What an advice says where the key can go without anything in its place."""


def check(job: Job, project: Project) -> Iterator[Said]:
    for key in job.given:
        if key.fate is not Fate.REMOVED:
            continue
        plain = any(words in key.why for words in _NEEDS_NOTHING)
        advice = key.why.partition(". ")[2]
        yield Finding(
            f"`{key.name}` is refused: {key.why}.",
            place=key.place,
            evidence=Evidence(Level.TEXT, {"key": key.name, "versions": dict(job.versions)}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.SAFE if plain else Risk.BEHAVIOURAL,
                "Remove it." if plain or not advice else f"{advice}.",
                (Change(Edit.REMOVE, key.place, key.name),) if plain else (),
            ),
        )


RULE = Rule(
    code="CFG003",
    name="removed-key",
    summary="A key is gone from the trainer's version.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Releases take keys out: because what they asked for is always so now, or because another key says it.",
        why="The run stops where its arguments are made.",
        detected="E0: a table of removals, each checked against the releases before and after, and the fields of the"
        " version that is installed or given.",
        proven="The version's class has no field of this name.",
        deliberate=("The run uses an older release than the one that was looked at.",),
        sources=("the sources of transformers 4.40 to 5.23 and TRL 0.9 to 1.16",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}overwrite_output_dir: true\n"}, says="gone since transformers 5.0"),
    good=Example({"sft.yaml": f"{_SFT}output_dir: out\n"}),
)
