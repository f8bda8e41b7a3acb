"""CKP006: weights are saved by pickle."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: data.jsonl\n    type: chat_template\nsequence_len: 4096\n"
    "micro_batch_size: 4\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    if (
        job.get("save_safetensors") is not False
        or not job.is_given("save_safetensors")
        or job.trainer is Trainer.DYNOTUNE
    ):
        return
    yield Finding(
        f"`{job.called('save_safetensors')}: false` writes weights by pickle: who loads them runs whatever stands in"
        " the file,"
        " and many tools refuse to.",
        place=job.place("save_safetensors"),
        evidence=Evidence(Level.RESOLVED, {"save_safetensors": False}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_safetensors')}: true`.",
            (job.set("save_safetensors", True),),
        ),
    )


RULE = Rule(
    code="CKP006",
    name="pickled-weights",
    summary="Weights are saved by pickle, not as safetensors.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="safetensors holds numbers and names; a pickle holds a program.",
        why="Loading a pickle runs it. Hubs mark such files, and loaders refuse them by default.",
        detected="E1: `save_safetensors: false`, given.",
        proven="The names of the files: `model.safetensors`, not `pytorch_model.bin`.",
        deliberate=("Weights that share memory in a way that safetensors refuses.",),
        sources=("transformers' documentation of `save_safetensors`",),
    ),
    bad=Example({"run.yml": f"{_AXOLOTL}save_safetensors: false\n"}, says="pickle"),
    good=Example({"run.yml": f"{_AXOLOTL}save_safetensors: true\n"}),
)
