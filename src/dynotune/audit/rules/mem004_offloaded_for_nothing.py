"""MEM004: weights or states wait in the host's memory although they fit on the GPUs many times."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.cards import gpus_told, named_card
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

BYTES_A_PARAMETER = 16
"""Of all weights in mixed precision with Adam: weights and gradients in 2 bytes, masters and two states in 4 each."""

SMALL = 4.0
"""GiB a GPU below which nobody lacks memory for them: half of the smallest cards that models are trained on."""

SHARE = 0.2
"""Of a card that the project names, up to which there is room beside activations."""

WHOLE = 4
"""Of these bytes, those of weights and gradients, which stages below the third keep on each GPU at first."""

_OFFLOADED = {"offload_param_device": "parameters", "offload_optimizer_device": "the optimizer's states"}
_SFT = "model_name_or_path: Qwen/Qwen2.5-1.5B\ndataset_name: data.jsonl\nmax_length: 2048\ndeepspeed: ds.json\n"
_RUN = "torchrun --nproc_per_node 8 -m trl.scripts.sft --config sft.yaml\n"
_DS = '{{\n  "zero_optimization": {{\n    "stage": 3{}\n  }}\n}}\n'


def check(job: Job, project: Project) -> Iterator[Said]:
    names = [name for name in _OFFLOADED if job.get(name) == "cpu"]
    model, stage, card = known(job.get("model_name_or_path")), number(job, "zero_stage"), named_card(job, project)
    if not names or model is None or model.billions is None or job.get("distributed_type") != "DEEPSPEED":
        return
    processes = gpus_told(job, project)
    if not processes or stage not in (1, 2, 3) or (stage != 3 and card is None):
        return  # the other stages keep whole weights on each, which is much for a card that is not known
    whole = 0 if stage == 3 else WHOLE
    each = model.billions * 1e9 * (whole + (BYTES_A_PARAMETER - whole) / processes) / 2**30
    if each > max(SMALL if stage == 3 else 0.0, SHARE * (card or 0.0)):
        return
    what = " and ".join(_OFFLOADED[name] for name in names)
    yield Finding(
        f"ZeRO-{int(stage)} keeps {what} of a {model.billions:g}B model in the host's memory, and all of it, divided by"
        f" {processes} process{'es' * (processes > 1)}, is {each:.1f} GiB a GPU: every step copies what would fit.",
        place=job.place(names[0]),
        also=tuple(job.place(name) for name in names[1:]),
        evidence=Evidence(
            Level.RESOLVED,
            {"billions": model.billions, "processes": processes, "GiB a GPU": round(each, 2), "offloaded": names},
        ),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            "Take the offloading out of the DeepSpeed file; for a model of this size ZeRO-2 or plain DDP may do.",
            measure="dynotune profile -- torchrun --nproc-per-node 2 train.py",
        ),
    )


RULE = Rule(
    code="MEM004",
    name="offloaded-for-nothing",
    summary="A model that fits on the GPUs is offloaded to the host.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="DeepSpeed's ZeRO-3 divides weights, gradients and the optimizer's states by the processes. Offloading keeps"
        " them in the host's memory besides: weights are copied in for each layer, and Adam runs on the CPU.",
        why="Copies over PCIe and an optimizer on the CPU take time at every step; they are the price for memory that, with"
        " a small model on many GPUs, nobody lacks.",
        detected="E1: the stage, both devices of the DeepSpeed or accelerate file, the number of processes as given, and the"
        f" model's size by its name: {BYTES_A_PARAMETER} bytes a parameter, divided, are at most {SMALL:g} GiB a GPU,"
        f" or {SHARE:.0%} of the card that the project names."
        " Activations are not counted, which offloading does not make smaller.",
        proven="Without it the run fits, and `nvidia-smi` shows how much is left.",
        deliberate=("Long rows whose activations take all the rest of the GPU.", "A GPU that others use too."),
        sources=("ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, section 3.1",),
    ),
    bad=Example(
        {
            "ds.json": _DS.format(',\n    "offload_param": {"device": "cpu"}'),
            "sft.yaml": _SFT,
            "run.sh": _RUN,
        },
        says="every step copies what would fit",
    ),
    good=Example({"ds.json": _DS.format(""), "sft.yaml": _SFT, "run.sh": _RUN}),
)
