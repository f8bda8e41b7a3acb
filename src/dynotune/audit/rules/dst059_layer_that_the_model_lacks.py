"""DST059: FSDP is to wrap a class of layers that the model does not have."""

from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

LAYERS = {
    "qwen2": "Qwen2DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_neox": "GPTNeoXLayer",
    "opt": "OPTDecoderLayer",
    "bloom": "BloomBlock",
}
"""The blocks of each type, as transformers names their classes."""

_KEYS = ("fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap")


def check(job: Job, project: Project) -> Iterator[Said]:
    model = known(job.get("model_name_or_path"))
    own = LAYERS.get(model.model_type) if model is not None else None
    if own is None:
        return
    for place, value in _asked(job, project):
        names = value if isinstance(value, list) else str(value).split(",")
        asked = [str(name).strip() for name in names if str(name).strip()]
        # Other names may be a vision tower's, a head's or an embedding's; another family's block is none of these.
        wrong = [name for name in asked if name != own and name in LAYERS.values()]
        if not wrong or own in asked:
            continue
        yield Finding(
            f"FSDP is to wrap `{wrong[0]}`, and `{job.get('model_name_or_path')}` is made of `{own}`: the run stops"
            f" with"
            f" `Could not find the transformer layer class {wrong[0]} in the model`.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"asked": wrong[0], "the model's": own}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.SAFE, f"Write `{own}`, or leave the key out: transformers' models name their own."),
            also=(job.place("model_name_or_path"),),
        )


def _asked(job: Job, project: Project) -> Iterator[tuple[Place, Any]]:
    for name in ("fsdp_config", *_KEYS):
        value = job.get(name)
        if isinstance(value, Mapping):
            value = next((value[key] for key in _KEYS if value.get(key)), None)
        if value and not isinstance(value, bool):
            yield job.place(name), value
    for config in project.configs:
        if config.kind == "accelerate" and config.file in job.files:
            inner = config.values.get("fsdp_config")
            for key in _KEYS:
                if isinstance(inner, Mapping) and inner.get(key):
                    yield config.places.get(f"fsdp_config.{key}", Place(config.file)), inner[key]


_ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: {}\n"
)
_FILES = {
    "run.sh": "accelerate launch --config_file fsdp.yaml -m trl.scripts.sft --config sft.yaml\n",
    "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\n",
}
RULE = Rule(
    code="DST059",
    name="layer-that-the-model-lacks",
    summary="FSDP is to wrap a class of layers that the model does not have.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="FSDP divides a model block by block, and is told the blocks' class by name.",
        why="A name that is left over from another model stops the run after all processes have loaded theirs.",
        detected="E1: the class in `fsdp_config` or in the command's file of accelerate, against the model's type,"
        " which its name"
        " tells. Only classes of other known families are reported.",
        proven="The run's first minute.",
        deliberate=("None is known.",),
        sources=("accelerate's `FullyShardedDataParallelPlugin.set_auto_wrap_policy`",),
    ),
    bad=Example({"fsdp.yaml": _ACCELERATE.format("LlamaDecoderLayer"), **_FILES}, says="made of `Qwen2DecoderLayer`"),
    good=Example({"fsdp.yaml": _ACCELERATE.format("Qwen2DecoderLayer"), **_FILES}),
)
