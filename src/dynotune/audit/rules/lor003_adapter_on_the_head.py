"""LOR003: an adapter on the head, where a fused loss goes past it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, at_least, given
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nuse_peft: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    names = job.get("lora_target_modules")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or "lm_head" not in names or adapters(job) is False:
        return
    if job.trainer is Trainer.TRL and job.method in (Method.SFT, Method.DPO) and at_least(job, "trl", 1, 16):
        what, then, stake = "TRL's fused head", "so TRL refuses it and the run stops", AtStake.STOPS
    elif (job.get("use_liger_kernel") is True and job.trainer is not Trainer.DYNOTUNE) or _by_hand(job, project):
        what, then, stake = (
            "Liger's fused loss",
            "so that adapter is never trained, and nothing says so",
            AtStake.RESULT,
        )
    elif _cut(job):
        what, then, stake = "Cut Cross Entropy", "so that adapter is never trained, and nothing says so", AtStake.RESULT
    else:
        return
    yield Finding(
        f"`{job.called('lora_target_modules')}` has `lm_head`: {what} multiplies by the head's own weight, {then}.",
        place=job.place("lora_target_modules"),
        evidence=Evidence(Level.RESOLVED, {"targets": list(names), "trl": job.versions.get("trl")}),
        stake=Stake(stake),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take `lm_head` out of the targets, or train the head whole (`lora_modules_to_save`).",
            accuracy="The head stays as it is, or is trained with all its weights.",
        ),
        also=(job.place("use_liger_kernel"),) if job.is_given("use_liger_kernel") else (),
    )


def _cut(job: Job) -> bool:
    """Axolotl's other fused loss: on wherever its plugin is listed, unless the key takes it out."""
    if job.trainer is not Trainer.AXOLOTL:
        return False
    plugins, key = given(job, "plugins"), given(job, "cut_cross_entropy")
    return "CutCrossEntropyPlugin" in str(plugins.value if plugins else "") and (key is None or key.value is True)


_LIGER = re.compile(r"AutoLigerKernelForCausalLM|apply_liger_kernel_to_\w+\(|LigerFusedLinearCrossEntropy")
_WITHOUT = re.compile(r"fused_linear_cross_entropy\s*=\s*False")


def _by_hand(job: Job, project: Project) -> bool:
    """The job's own files put Liger's loss in, by a call that patches the model's classes or by its module."""
    if job.trainer is Trainer.DYNOTUNE:
        return False
    own = [code(one) for one in project.scripts if one.file in job.files]
    return any(_LIGER.search(one) for one in own) and not any(_WITHOUT.search(one) for one in own)


RULE = Rule(
    code="LOR003",
    name="adapter-on-the-head",
    summary="An adapter on `lm_head` that a fused loss goes past.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Fused losses take the head's weight and the hidden states, and never call the head. An adapter on it is not"
        " part of what they compute.",
        why="It gets no gradient, and the model that is saved has an adapter of zeros there.",
        detected="E1: the targets, the trainer's version, Liger's key and Axolotl's plugin of Cut Cross Entropy; for"
        " a loop, calls that put Liger's loss in.",
        proven="`lora_B` of the head is zero in a checkpoint.",
        deliberate=("None is known.",),
        sources=("TRL issue 4612; TRL 1.16's `sft_trainer.py` refuses it",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}lora_target_modules: [q_proj, v_proj, lm_head]\n"}, says="lm_head"),
    good=Example({"sft.yaml": f"{_SFT}lora_target_modules: [q_proj, v_proj]\n"}),
)
