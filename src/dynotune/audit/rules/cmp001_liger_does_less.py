"""CMP001: Liger's kernels are asked for where they bring less than the key says, or nothing."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, at_least
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.liger_that_misses_the_model import liger_that_misses_the_model
from dynotune.audit.shapes.ligers_loss_refused import ligers_loss_refused
from dynotune.audit.shapes.told_of_ligers_loss import told_of_ligers_loss

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nuse_peft: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("use_liger_kernel") is True:
        yield from _without_its_loss(job)
        yield from _without_the_model(job)
    yield from liger_that_misses_the_model(job, project)
    yield from told_of_ligers_loss(job, project)
    yield from ligers_loss_refused(job, project)


def _without_its_loss(job: Job) -> Iterator[Said]:
    if job.trainer is not Trainer.TRL:
        return
    if job.method not in (Method.SFT, Method.DPO) or at_least(job, "trl", 1, 16) is not True:
        return
    also = " and only the policy's, never the reference model's" if job.method is Method.DPO else ""
    lora = " With adapters it would save memory and no time anyway." if adapters(job) else ""
    yield Finding(
        f"`{job.called('use_liger_kernel')}: true` is deprecated since TRL 1.16 and switches Liger's fused loss off:"
        " it replaces"
        f" norms, rotary embedding and activation{also}; the loss is TRL's own fused head either way.{lora}",
        place=job.place("use_liger_kernel"),
        evidence=Evidence(Level.RESOLVED, {"trl": job.versions.get("trl", ""), "adapters": adapters(job)}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.NUMERIC,
            "Take it out, or keep it for the layers' kernels after measuring them.",
            (job.remove("use_liger_kernel"),),
            breaks="The layers' kernels go too: on one H200 they made LoRA steps of a 7B 10 to 15 % faster.",
            measure="dynotune bench -- python train.py --use_liger_kernel :: python train.py",
        ),
    )


WITHOUT = frozenset({"gpt2", "gpt_neox", "opt", "bloom"})
"""Types that are not in Liger 0.8.5's table, of those that a name tells."""

_NEOX = "model_name_or_path: EleutherAI/pythia-1b\ndataset_name: data.jsonl\n"


def _without_the_model(job: Job) -> Iterator[Said]:
    if job.trainer is Trainer.DYNOTUNE:
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
    code="CMP001",
    name="liger-does-less",
    summary="`use_liger_kernel` brings less than it says, or nothing.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="TRL computes the loss of SFT and DPO by a fused head of its own from 1.16 on, and forces Liger's off. Liger"
        " replaces the layers of the types in its table; for others it returns after a message at level `info`.",
        why="Who sets the key for the memory of the logits gets other kernels instead, and a deprecation warning; of a model"
        " that Liger does not know the run goes on as if nothing had been asked for.",
        detected="E1: the key, the method and the version that the job was resolved with; the model's type by its name,"
        " against the table of Liger 0.8.5. E0: `apply_liger_kernel_to_...` of another family than the model's; `use_liger`"
        " of TRL 0.12 to 0.16 with a model that is loaded already. A document or comment that tells to switch Liger on for"
        " the logits, or for its loss, beside such a release of TRL. E1: Liger's loss with adapters, by a release of TRL"
        " whose trainer refuses both together; LLaMA-Factory's stages that need logits.",
        proven="`dynotune profile -- python train.py` names the kernels of the head, and Liger's, if there are any.",
        deliberate=("The layers' kernels are wanted and were measured.", "A later version of Liger has the type."),
        sources=(
            "TRL 1.16's sources: `sft_trainer.py` and `dpo_trainer.py`",
            "H200, 7B LoRA: TRL with Liger 10 to 15 % faster in every steady step (the project's baseline)",
            "Liger 0.8.5's `_apply_liger_kernel_to_instance`",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}use_liger_kernel: true\n"}, says="switches Liger's fused loss off"),
    good=Example({"sft.yaml": _SFT}),
    also_bad=(Example({"sft.yaml": f"{_NEOX}use_liger_kernel: true\n"}, says="gpt_neox"),),
    formerly=("CMP002",),
    former_names=("liger-knows-no-such-model",),
)
