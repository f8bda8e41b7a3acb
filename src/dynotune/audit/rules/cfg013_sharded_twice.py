"""CFG013: DeepSpeed and FSDP are both asked for."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_TRAINERS = frozenset({Trainer.TRL, Trainer.TRANSFORMERS, Trainer.LLAMA_FACTORY, Trainer.AXOLOTL})
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
_ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\n"
_STAGE = '{"zero_optimization": {"stage": 3}}\n'
_NONE: tuple[object, ...] = (None, "", False, [], {})


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer not in _TRAINERS or job.get("deepspeed") in _NONE:
        return
    place: Place | None
    stake = AtStake.STOPS
    if job.is_given("fsdp") and job.get("fsdp") not in _NONE:
        place, other = job.place("fsdp"), f"`{job.called('fsdp')}`"
    else:
        place, other = _of_a_launcher(job, project)
        stake = AtStake.RESULT
    if place is None:
        return
    yield Finding(
        f"`{job.called('deepspeed')}` and {other} both divide the model over devices, and only one of them can.",
        place=job.place("deepspeed"),
        also=(place,),
        evidence=Evidence(Level.RESOLVED, {"deepspeed": str(job.get("deepspeed"))[:80], "fsdp": other}),
        stake=Stake(stake),
        remedy=Remedy(Risk.BEHAVIOURAL, "Keep one of them."),
    )


def _of_a_launcher(job: Job, project: Project) -> tuple[Place | None, str]:
    """FSDP in a file of accelerate that the job's command names."""
    for config in project.configs:
        if config.kind == "accelerate" and config.file in job.files and config.values.get("distributed_type") == "FSDP":
            return config.places.get("distributed_type", Place(config.file)), "accelerate's `distributed_type: FSDP`"
    return None, ""


RULE = Rule(
    code="CFG013",
    name="sharded-twice",
    summary="DeepSpeed and FSDP are both asked for.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="DeepSpeed's stages and PyTorch's FSDP do the same: parameters, gradients and states are divided over devices.",
        why="transformers refuses both in its arguments; of a launcher's FSDP beside a DeepSpeed file one at most can"
        " have its way; which, we have not tried.",
        detected="E1: `deepspeed` is given, and so is `fsdp`, or the command's file of accelerate has"
        " `distributed_type: FSDP`.",
        proven='The run ends with "Using --fsdp xxx together with --deepspeed is not possible".',
        deliberate=("None that is known.",),
        sources=("transformers 5.23, `trainer.py`",),
    ),
    bad=Example(
        {
            "sft.yaml": f"{_SFT}deepspeed: ds.json\n",
            "ds.json": _STAGE,
            "fsdp.yaml": _ACCELERATE,
            "run.sh": "accelerate launch --config_file fsdp.yaml -m trl.scripts.sft --config sft.yaml\n",
        },
        says="both divide the model",
    ),
    good=Example(
        {
            "sft.yaml": _SFT,
            "fsdp.yaml": _ACCELERATE,
            "run.sh": "accelerate launch --config_file fsdp.yaml -m trl.scripts.sft --config sft.yaml\n",
        }
    ),
)
