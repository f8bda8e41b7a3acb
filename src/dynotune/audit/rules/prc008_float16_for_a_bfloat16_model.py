"""PRC008: float16 is asked for, and the model was trained in bfloat16."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.cards import may_be_older
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import Known, known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

BFLOAT16 = frozenset({"qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "mistral", "phi3", "olmo2"})
"""Types whose checkpoints are published in bfloat16 throughout; of `llama` those of 128,256 words, and SmolLM."""

_T5 = re.compile(r"^(?:google/|google-t5/|bigscience/)?(?:flan-|m|by)?t5-|^bigscience/(?:T0|mt0)", re.IGNORECASE)
"""T5 and what was made of it: trained in bfloat16 on TPUs, and known to overflow in its feed-forward layers."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    name = job.get("model_name_or_path")
    model = known(name)
    if job.trainer is Trainer.DYNOTUNE or not on_gpu(job) or not (_is_t5(name) or (model and _is_bfloat16(model))):
        return
    setting = next(
        (one for one in ("fp16", "mixed_precision") if job.get(one) in (True, "fp16") and job.is_given(one)), ""
    )
    if not setting or job.get("bf16") is True or _is_old(job, project):
        return
    yield Finding(
        f"`{job.called(setting)}: {job.get(setting) if setting == 'mixed_precision' else 'true'}` trains"
        f" `{name}` in float16, and"
        " its weights were made in bfloat16: values above 65,504 overflow, and the loss scaler skips those steps.",
        place=job.place(setting),
        evidence=Evidence(Level.RESOLVED, {"model": name, "asked for": "float16", "published in": "bfloat16"}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('bf16')}: true` instead, on any GPU since Ampere: as fast, and no scaler."
            if setting == "fp16"
            else "Set `mixed_precision: bf16`, on any GPU since Ampere: as fast, and no scaler.",
            accuracy="bfloat16 has float32's range and three bits less than float16.",
            measure="Count the skipped steps in the log: gradient norms that are `inf` or `nan`.",
        ),
        deliberate="The GPU is older than Ampere.",
    )


def _is_t5(name: object) -> bool:
    return isinstance(name, str) and _T5.match(name) is not None


def _is_bfloat16(model: Known) -> bool:
    return model.model_type in BFLOAT16 or (model.model_type == "llama" and model.vocabulary in (128_256, 49_152))


def _is_old(job: Job, project: Project) -> bool:
    """The GPU is known to have no bfloat16, or the project speaks of one that has none."""
    gpus = project.environment.gpus if project.environment else ()
    if any(float(str(gpu.get("capability") or "8.0")) < 8 for gpu in gpus):
        return True
    return may_be_older(job, project)


RULE = Rule(
    code="PRC008",
    name="float16-for-a-bfloat16-model",
    summary="A model that was made in bfloat16 is trained in float16.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Llama 3, Qwen, Mistral, Gemma and most models since 2023 were trained in bfloat16, whose largest"
        " number is that"
        " of float32. float16 ends at 65,504.",
        why="Activations of such models pass that (Gemma's and Qwen's do): infinite gradients, skipped steps, a"
        " loss that is no"
        " number. On GPUs since Ampere both types are equally fast.",
        detected="E1: `fp16` or `mixed_precision: fp16` is given for a model whose family is published in bfloat16. Not said"
        " where the GPU has no bfloat16, by `--env` or by a comment or document that names an older one.",
        proven="Skipped steps and gradient norms of the first hundred steps.",
        deliberate=("GPUs before Ampere (V100, T4) have no bfloat16.",),
        sources=(
            "The models' `config.json`: `torch_dtype: bfloat16`",
            "Transformers' documentation on half precision; transformers issue 4586 on T5 in float16",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}fp16: true\nbf16: false\n"}, says="made in bfloat16"),
    good=Example({"sft.yaml": f"{_SFT}bf16: true\n"}),
)
