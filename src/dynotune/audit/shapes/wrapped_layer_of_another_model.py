"""FSDP is told to wrap a layer by a class that the model does not have."""

from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place

LAYERS = {
    "qwen2": "Qwen2DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "gpt2": "GPT2Block",
    "gpt_neox": "GPTNeoXLayer",
    "opt": "OPTDecoderLayer",
    "bloom": "BloomBlock",
}
"""The class of a block by the model's type, as transformers names it."""

_NAME = "transformer_layer_cls_to_wrap"


def wrapped_layer_of_another_model(job: Job) -> Iterator[Said]:
    """`fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer` for a Qwen 2 model."""
    model = known(job.get("model_name_or_path"))
    told = _told(job)
    if model is None or model.model_type not in LAYERS or told is None:
        return
    value, place = told
    names = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        return
    right = LAYERS[model.model_type]
    others = [one for one in names if one in LAYERS.values() and one != right]
    if not others:
        return
    yield Finding(
        f"FSDP is told to wrap `{others[0]}`, and `{job.get('model_name_or_path')}` has no such layer (its own is"
        f" `{right}`): the run stops before its first step, as the class is not found.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"asked for": others[0], "model's": right}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL, f"Name `{right}`, or leave the key out: the model tells it.", effort=Effort.LINE
        ),
        also=(job.place("model_name_or_path"),),
    )


def _told(job: Job) -> tuple[object, Place] | None:
    """Of the launcher's file, the arguments' `fsdp_config`, or the argument of older releases."""
    policy = job.setting("fsdp_auto_wrap_policy")
    if policy is not None and "TRANSFORMER" not in str(policy.value).upper():
        return None  # it wraps by size, or nothing
    for name in (f"fsdp_{_NAME}", _NAME):
        setting, key = job.setting(name), given(job, name)
        if setting is not None and setting.value:
            return setting.value, setting.place
        if key is not None and key.value:
            return key.value, key.place
    held = job.setting("fsdp_config")
    value = held.value if held is not None else None
    if held is None or not isinstance(value, Mapping):
        return None
    return next(((value[one], held.place) for one in (_NAME, f"fsdp_{_NAME}") if value.get(one)), None)
