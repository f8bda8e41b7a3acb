"""CMP001: Liger's fused loss is asked for where the trainer switches it off, or cannot help."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, at_least
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nuse_peft: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("use_liger_kernel") is not True or job.trainer is not Trainer.TRL:
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


RULE = Rule(
    code="CMP001",
    name="liger-does-less",
    summary="`use_liger_kernel` no longer brings the fused loss in TRL.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="TRL computes the loss of SFT and DPO by a fused head of its own from 1.16 on, and forces Liger's off.",
        why="Who sets the key for the memory of the logits gets other kernels instead, and a deprecation warning.",
        detected="E1: the key, the method and the version that the job was resolved with.",
        proven="`dynotune profile -- python train.py` names the kernels of the head.",
        deliberate=("The layers' kernels are wanted and were measured.",),
        sources=(
            "TRL 1.16's sources: `sft_trainer.py` and `dpo_trainer.py`",
            "H200, 7B LoRA: TRL with Liger 10 to 15 % faster in every steady step (the project's baseline)",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}use_liger_kernel: true\n"}, says="switches Liger's fused loss off"),
    good=Example({"sft.yaml": _SFT}),
)
