"""ATT003: flash attention is asked for and everything is float32, which its kernels do not take."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import FLASH, attention, is_false, on_gpu
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nattn_implementation: flash_attention_2\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    used = attention(job)
    if not used or not used.startswith(FLASH) or not on_gpu(job):
        return
    if job.get("dtype") not in ("float32", "fp32") or not is_false(job, "bf16") or not is_false(job, "fp16"):
        return
    if job.get("mixed_precision") not in (None, "no") or job.get("load_in_4bit") is True:
        return
    yield Finding(
        f"`{job.called('attn_implementation')}: {used}` with weights in float32 and neither `bf16` nor `fp16`: its kernels"
        " take 16-bit numbers only, so the first step stops.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.RESOLVED, {"attention": used, "dtype": "float32", "bf16": False, "fp16": False}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('bf16')}: true`, or `{job.called('attn_implementation')}: sdpa` to stay in float32.",
            (job.set("bf16", True),),
            accuracy="Matrix products round to bfloat16; the weights stay float32.",
        ),
    )


RULE = Rule(
    code="ATT003",
    name="flash-attention-in-float32",
    summary="Flash attention is asked for in a run that is float32 throughout.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="FlashAttention's kernels take float16 and bfloat16. Queries become 16-bit by autocast (`bf16: true`) or by the"
        " model's own type.",
        why="In float32 the call is refused: `FlashAttention only support fp16 and bf16 data type`.",
        detected="E1: attention, `dtype`, `bf16`, `fp16` and accelerate's mixed precision as they resolve.",
        proven="The first step of the run.",
        deliberate=("The model casts its queries itself.",),
        sources=("FlashAttention's README: requirements of datatypes",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}dtype: float32\nbf16: false\n"}, says="float32"),
    good=Example({"sft.yaml": f"{_SFT}dtype: float32\nbf16: true\n"}),
)
