"""CMP002: Liger's kernels are asked for, for a model that Liger has none for."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

WITHOUT = frozenset({"gpt2", "gpt_neox", "opt", "bloom"})
"""Types that are not in Liger 0.8.5's table, of those that a name tells."""

_SFT = "model_name_or_path: EleutherAI/pythia-1b\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("use_liger_kernel") is not True or job.trainer is Trainer.DYNOTUNE:
        return
    model = known(job.get("model_name_or_path"))
    if model is None or model.model_type not in WITHOUT:
        return
    yield Finding(
        f"`{job.called('use_liger_kernel')}: true` does nothing: Liger has no kernels for `{model.model_type}`, and"
        " says so only"
        " in a log line below the usual level.",
        place=job.place("use_liger_kernel"),
        evidence=Evidence(Level.RESOLVED, {"model type": model.model_type}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.SAFE, "Take it out.", (job.remove("use_liger_kernel"),)),
    )


RULE = Rule(
    code="CMP002",
    name="liger-knows-no-such-model",
    summary="Liger has no kernels for the model.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Liger replaces the layers of the types in its table. For others it returns after a message at level `info`.",
        why="The run goes on as if nothing had been asked for.",
        detected="E1: the model's type by its name, against the table of Liger 0.8.5.",
        proven="`dynotune profile -- python train.py`: no kernel of Liger's.",
        deliberate=("A later version of Liger has the type.",),
        sources=("Liger 0.8.5's `_apply_liger_kernel_to_instance`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}use_liger_kernel: true\n"}, says="gpt_neox"),
    good=Example({"sft.yaml": _SFT}),
)
