"""PRC004: all weights are trained in 16 bits: bfloat16 at a rate at which most cannot move, or float16 at any."""

from collections.abc import Iterator
from math import erf, sqrt

from dynotune.audit.facts.asked import adapters, given, is_false, number, on_gpu
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.loops_in_bfloat16 import loops_in_bfloat16
from dynotune.audit.shapes.loops_in_float16 import loops_in_float16

ADAM = ("adamw", "adam", "paged_adamw", "apollo", "lion")
WEIGHT = 0.02
"""Standard deviation that most models' matrices have about: the usual `initializer_range`."""

HALF_A_STEP = 2.0**-9
"""Half the distance of neighbouring bfloat16 numbers, at its largest relative to the number: smaller updates round away."""

MOST = 0.5

_LAUNCH = "accelerate launch --num_processes 1 -m trl.scripts.sft --config sft.yaml\n"
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ndtype: bfloat16\n"
_HALF = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nbf16: false\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from _bfloat16(job)
    yield from _float16(job)
    yield from loops_in_float16(job, project)
    yield from loops_in_bfloat16(job, project, HALF_A_STEP, WEIGHT, MOST)


def _bfloat16(job: Job) -> Iterator[Said]:
    if adapters(job) is not False or job.get("dtype") != "bfloat16" or job.trainer is Trainer.DYNOTUNE:
        return
    if any(_given(job, name) for name in ("deepspeed", "fsdp", "fsdp_config")) or not on_gpu(job):
        return  # they keep float32 masters, or may
    if job.get("distributed_type") in ("DEEPSPEED", "FSDP"):
        return
    rate, optim = number(job, "learning_rate"), job.get("optim")
    if rate is None or not isinstance(optim, str) or not optim.lower().startswith(ADAM):
        return
    launched = job.get("distributed_type") or job.get("num_processes")
    if job.trainer in (Trainer.TRL, Trainer.TRANSFORMERS) and not launched:
        yield NotChecked(
            "whether a launcher keeps float32 masters (DeepSpeed, FSDP) is not in what was read", job.place("dtype")
        )
        return
    still = 1 - erf(rate / HALF_A_STEP / WEIGHT / sqrt(2))
    if still < MOST:
        return
    yield Finding(
        f"All weights are bfloat16, and at `{job.called('learning_rate')}: {rate:g}` an Adam step of that size rounds to"
        f" nothing for weights above {rate / HALF_A_STEP:.1g}: about {still:.0%} of a matrix with deviation {WEIGHT}.",
        place=job.place("dtype"),
        evidence=Evidence(
            Level.RESOLVED, {"dtype": "bfloat16", "learning rate": rate, "share that stays": round(still, 2)}
        ),
        stake=Stake(AtStake.CHOICE, source="arithmetic: bfloat16 has 8 bits, an Adam step is about the learning rate"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{job.called('dtype')}: float32` with `bf16: true`: float32 weights, bfloat16 products.",
            (job.set("dtype", "float32"),) if job.called("dtype") in ("dtype", "torch_dtype") else (),
            breaks="Weights, gradients and states take twice the memory.",
            accuracy="Small updates add up instead of being lost.",
        ),
        deliberate="Memory does not allow float32 weights." if number(job, "max_steps") is None else "",
    )


def _given(job: Job, name: str) -> bool:
    key = given(job, name)
    return bool(job.get(name)) or (key is not None and bool(key.value))


def _float16(job: Job) -> Iterator[Said]:
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
    code="PRC004",
    name="weights-of-16-bits",
    summary="Full training of weights of 16 bits without float32 masters.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="A weight in bfloat16 has 8 bits. Adding a step that is smaller than half the distance to its neighbour leaves"
        " it where it was. float16 training keeps float32 weights and scales the loss, so that small gradients survive:"
        " with weights in float16 PyTorch's scaler refuses, and without it nothing is scaled.",
        why="Adam's steps are about as large as the learning rate, whatever the gradient. At 1e-5 only weights below 0.005"
        " move; the rest waits for chance. The loss still falls, more slowly than it would. In float16 the run stops, or"
        " learns from gradients of which many are zero.",
        detected="E1: `dtype: bfloat16` with all weights trained by an Adam without DeepSpeed or FSDP, and a learning rate"
        f" at which more than {MOST:.0%} of normal weights stay; `dtype: float16` with all weights trained, in a loop"
        " of one's own too. Adapters are"
        " excepted, since PEFT keeps them in float32.",
        proven="Compare the weights of a checkpoint with the model's: count those that are bit-equal. float16: the run's"
        " first update.",
        deliberate=(
            "Memory does not allow float32 weights.",
            "An optimizer that rounds stochastically or compensates.",
        ),
        sources=(
            "TRL issue 5138: what weights are loaded in moved GSM8K by 9 points",
            "The format's arithmetic",
            "PyTorch's `GradScaler.unscale_`",
        ),
    ),
    bad=Example({"run.sh": _LAUNCH, "sft.yaml": f"{_SFT}learning_rate: 1.0e-5\n"}, says="rounds to nothing"),
    good=Example({"run.sh": _LAUNCH, "sft.yaml": f"{_SFT}learning_rate: 1.0e-5\nuse_peft: true\n"}),
    also_bad=(Example({"sft.yaml": f"{_HALF}dtype: float16\nfp16: true\n"}, says="Attempting to unscale"),),
    formerly=("PRC005",),
    former_names=(
        "float16-weights",
        "weights-without-masters",
    ),
)
