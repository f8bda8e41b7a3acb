"""A loop of one's own trains all weights in bfloat16, by steps that most weights are too large for."""

import re
from collections.abc import Iterator
from math import erf, sqrt

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_NOT_PLAIN = re.compile(
    r"get_peft_model|LoraConfig|deepspeed|FSDP|FullyShardedDataParallel|fully_shard|requires_grad|float32|\.float\(\)|load_in_"
    r"|master|kahan|stochastic|torchao|bitsandbytes|optimi\b|Accelerator\(",
    re.IGNORECASE,
)
"""What trains a part of the weights, or keeps others of 32 bits, or may."""

_ADAM = re.compile(r"^torch\.(?:optim\.)?(?:\w+\.)?(?:Adam|AdamW|NAdam|RAdam)$|^(?:optim\.)?AdamW?$")


def loops_in_bfloat16(job: Job, project: Project, half_a_step: float, weight: float, most: float) -> Iterator[Said]:
    """half_a_step: relative distance below which an update rounds away. weight: deviation of a matrix's weights. most: share
    of weights that stay, from which on it is said."""
    if job.trainer is not Trainer.TORCH or job.get("use_peft") or job.get("deepspeed") or not on_gpu(job):
        return
    if job.get("dtype") != "bfloat16" or (rate := number(job, "learning_rate")) is None or job.holes:
        return
    start = next((one for one in project.scripts if one.file in job.files and any(loops(one))), None)
    program = connected(start, project) if start is not None else ()
    if not program or any(_NOT_PLAIN.search(code(one)) for one in program):
        return
    made = [call for one in program for call in one.calls if call.name.startswith(("torch.optim", "optim"))]
    adam = next((call for call in made if _ADAM.search(call.name)), None)
    still = 1 - erf(rate / half_a_step / weight / sqrt(2))
    if adam is None or still < most:
        return
    yield Finding(
        f"All weights are bfloat16, and at a learning rate of {rate:g} an Adam step of that size rounds to"
        f" nothing for weights above {rate / half_a_step:.1g}: about {still:.0%} of a matrix with deviation {weight}.",
        place=job.place("dtype"),
        evidence=Evidence(
            Level.RESOLVED, {"dtype": "bfloat16", "learning rate": rate, "share that stays": round(still, 2)}
        ),
        stake=Stake(AtStake.CHOICE, source="arithmetic: bfloat16 has 8 bits, an Adam step is about the learning rate"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            'Load the weights in float32 and run the forward pass under `torch.autocast("cuda", torch.bfloat16)`.',
            breaks="Weights, gradients and states take twice the memory.",
            accuracy="Small updates add up instead of being lost.",
        ),
        deliberate="Memory does not allow float32 weights.",
        also=(adam.place,),
    )
