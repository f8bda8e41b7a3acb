"""DST003: FSDP with a 4-bit base whose storage it cannot shard."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 1\nnum_processes: 2\nmixed_precision: bf16\n"
    "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
)
_LAUNCH = "accelerate launch --config_file accelerate.yaml -m trl.scripts.sft --config sft.yaml\n"
_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nuse_peft: true\nload_in_4bit: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("load_in_4bit") is not True or job.trainer not in (Trainer.TRL, Trainer.TRANSFORMERS):
        return
    if job.get("distributed_type") != "FSDP" and not (job.get("fsdp") and job.is_given("fsdp")):
        return
    storage = job.setting("bnb_4bit_quant_storage")
    if storage is not None and (not storage.is_known or storage.value not in (None, "uint8", "torch.uint8")):
        return
    if storage is None and any(file.endswith(".py") for file in job.files):
        return  # it may stand in a `BitsAndBytesConfig` that was not followed
    wanted = "bfloat16" if job.get("fp16") is not True else "float16"
    yield Finding(
        "FSDP flattens weights of one type, and a 4-bit base is stored as `uint8` beside"
        f" {wanted} adapters: it is not sharded, or the run stops.",
        place=job.place("load_in_4bit"),
        evidence=Evidence(Level.RESOLVED, {"load_in_4bit": True, "distributed_type": "FSDP"}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `bnb_4bit_quant_storage: {wanted}`: the same bits in a type that can be sharded.",
            (job.set("bnb_4bit_quant_storage", wanted),),
        ),
    )


RULE = Rule(
    code="DST003",
    name="sharded-four-bits",
    summary="FSDP with a 4-bit base stored in a type that cannot be sharded.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="bitsandbytes keeps 4-bit weights in `uint8` unless told to use another type for the same bits. FSDP"
        " shards only"
        " parameters of floating point, of one type in a unit.",
        why="Every GPU then holds the whole base, or the run ends with an error on mixed types.",
        detected="E1: 4-bit loading, FSDP by the launcher or the arguments, and no `bnb_4bit_quant_storage`.",
        proven="Memory of each GPU after loading.",
        deliberate=("None is known.",),
        sources=("PEFT's documentation of FSDP with QLoRA; TRL issue 3436",),
    ),
    bad=Example({"run.sh": _LAUNCH, "accelerate.yaml": _ACCELERATE, "sft.yaml": _SFT}, says="uint8"),
    good=Example(
        {"run.sh": _LAUNCH, "accelerate.yaml": _ACCELERATE, "sft.yaml": f"{_SFT}bnb_4bit_quant_storage: bfloat16\n"}
    ),
)
