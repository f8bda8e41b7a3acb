"""CFG006: a key that stands twice in one mapping."""

from collections.abc import Iterator

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.read.configs.recognise import UNKNOWN
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(config: ConfigFile, project: Project) -> Iterator[Said]:
    if config.kind == UNKNOWN:
        return
    for path, places in config.repeated.items():
        lines = ", ".join(str(place.line) for place in places[:-1])
        yield Finding(
            f"`{path}` stands {len(places)} times: line {places[-1].line} counts, line {lines} does nothing.",
            place=places[0],
            also=places[1:],
            evidence=Evidence(Level.TEXT, {"lines": [place.line for place in places]}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(Risk.BEHAVIOURAL, "Keep the one that is meant."),
        )


RULE = Rule(
    code="CFG006",
    name="repeated-key",
    summary="A key is given twice, and one of the values is lost.",
    group=Group.CONFIGURATION,
    subject=Subject.CONFIG,
    check=check,
    page=Page(
        what="YAML and JSON forbid or discourage equal keys in one mapping; PyYAML and Python's json take the last.",
        why="The value that a reader sees first is not the one that runs.",
        detected="E0: two equal keys in one mapping of the file.",
        proven="Load the file and print it.",
        deliberate=("None that is known.",),
        sources=("YAML 1.2.2, 3.2.1.1; PyYAML's `construct_mapping`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}learning_rate: 1.0e-5\nseed: 1\nlearning_rate: 1.0e-4\n"}, says="line 5 counts"),
    good=Example({"sft.yaml": f"{_SFT}learning_rate: 1.0e-4\nseed: 1\n"}),
)
