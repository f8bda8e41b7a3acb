"""PRC005: all weights are trained in float16, where gradients cannot be scaled, or are not."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, is_false, on_gpu
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nbf16: false\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("dtype") not in ("float16", "half", "fp16") or adapters(job) is not False or not on_gpu(job):
        return
    if job.trainer not in (Trainer.TRL, Trainer.TRANSFORMERS) or job.get("distributed_type") == "DEEPSPEED":
        return
    if job.get("deepspeed"):
        return
    if job.get("fp16") is True:
        message = "cannot be scaled back, and the first update stops: `Attempting to unscale FP16 gradients`"
        stake = AtStake.STOPS
    elif job.get("bf16") is True and job.is_given("dtype"):
        message = "added to weights of 11 bits: small updates round to nothing, and large activations overflow"
        stake = AtStake.RESULT
    elif is_false(job, "fp16") and is_false(job, "bf16"):
        message = "are not scaled: small ones become zero, and large ones infinite"
        stake = AtStake.RESULT
    else:
        return
    yield Finding(
        f"All weights are loaded in float16 (`{job.called('dtype')}`), so gradients are float16 too and {message}.",
        place=job.place("dtype"),
        evidence=Evidence(Level.RESOLVED, {"dtype": "float16", "fp16": job.get("fp16")}),
        stake=Stake(stake),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('dtype')}: float32` with `fp16: true`: float32 weights, float16 products.",
            (job.set("dtype", "float32"), job.set("fp16", True)),
            breaks="Weights, gradients and states take twice the memory.",
        ),
    )


RULE = Rule(
    code="PRC005",
    name="float16-weights",
    summary="Full training of float16 weights.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="float16 training keeps float32 weights and scales the loss, so that small gradients survive. With weights in"
        " float16 PyTorch's scaler refuses; without it nothing is scaled.",
        why="The run stops, or learns from gradients of which many are zero.",
        detected="E1: `dtype: float16` with all weights trained; adapters are excepted, since PEFT keeps them in float32.",
        proven="The run's first update.",
        deliberate=("An optimizer of the user's own that scales by itself.",),
        sources=("PyTorch's `GradScaler.unscale_`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}dtype: float16\nfp16: true\n"}, says="Attempting to unscale"),
    good=Example({"sft.yaml": f"{_SFT}dtype: float32\nfp16: true\n"}),
)
