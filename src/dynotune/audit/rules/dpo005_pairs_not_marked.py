"""DPO005: LLaMA-Factory's DPO on a data set that is not marked as pairs."""

from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(job: Job, project: Project) -> Iterator[Said]:
    asked = given(job, "dataset")
    if job.trainer is not Trainer.LLAMA_FACTORY or job.method is not Method.DPO or asked is None:
        return
    value = asked.value
    names = [
        one.strip() for one in (value.split(",") if isinstance(value, str) else value or ()) if isinstance(one, str)
    ]
    for config in (one for one in project.configs if one.kind == "llama-factory data"):
        for name in names:
            held = config.values.get(name)
            if not isinstance(held, Mapping) or held.get("ranking") is True or "hf_hub_url" in held:
                continue
            yield Finding(
                f"`{name}` is trained on by DPO, and `{config.file}` does not mark it as pairs (`ranking:"
                f" true`): LLaMA-Factory"
                " stops, or reads it as plain rows.",
                place=config.places.get(name, Place(config.file, key=name)),
                evidence=Evidence(Level.RESOLVED, {"data set": name, "ranking": held.get("ranking")}),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(Risk.OPERATIONAL, f'Add `"ranking": true` to `{name}` in `{config.file}`.'),
                also=(asked.place,),
            )


_LF = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\ndo_train: true\nfinetuning_type: lora\ndataset: pairs\n"
    "dataset_dir: .\ntemplate: qwen\noutput_dir: out\n"
)
_INFO = '{{"pairs": {{"file_name": "pairs.json"{}, "columns": {{"chosen": "chosen", "rejected": "rejected"}}}}}}\n'
RULE = Rule(
    code="DPO005",
    name="pairs-not-marked",
    summary="LLaMA-Factory's DPO on a data set that is not marked as pairs.",
    group=Group.DATA,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="`dataset_info.json` says of a data set whether its rows are pairs: `ranking: true`.",
        why="Without it the preference stage refuses the data set.",
        detected="E1: the data sets of a job with `stage: dpo`, as the file defines them.",
        proven="The run's first seconds.",
        deliberate=("A data set of the hub whose loader marks it.",),
        sources=("LLaMA-Factory's `data/README.md`: preference data sets",),
    ),
    bad=Example({"run.yaml": _LF, "dataset_info.json": _INFO.format("")}, says="does not mark"),
    good=Example({"run.yaml": _LF, "dataset_info.json": _INFO.format(', "ranking": true')}),
)
