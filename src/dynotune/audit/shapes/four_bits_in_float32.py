"""Weights of 4 bits are expanded to float32, by the default of bitsandbytes or by name, to be multiplied."""

import re
from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import FLASH, given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_SIXTEEN = re.compile(
    r"\b(?:bf16|(?P<fp16>fp16))\s*=\s*True\b|\b(?:torch_)?(?<!compute_)dtype\s*=\s*[\"']?(?:torch\.)?(?:bfloat16|(?P<float16>float16))\b"
    r"|\bmixed_precision\s*=\s*[\"']bf16[\"']"
)
"""What else of the script is to compute in 16 bits."""


def _is_float32(asked: Setting) -> bool:
    return (
        isinstance(asked.value, str)
        and asked.value in ("float32", "float", "torch.float32", "fp32")
        and not asked.others
    )


def four_bits_in_float32(script: Script) -> Iterator[Said]:
    """Nobody says otherwise than the default of bitsandbytes, or it is said beside 16 bits elsewhere."""
    for call in script.calls_of("BitsAndBytesConfig", "from_pretrained"):
        four = call.arguments.get("load_in_4bit")
        if not call.name.startswith("transformers.") or four is None or four.value is not True:
            continue
        loads = call.name.endswith("from_pretrained")
        if loads and ("quantization_config" in call.arguments or not re.search(r"Model|LM\b", call.name)):
            continue
        asked = call.arguments.get("bnb_4bit_compute_dtype")
        half = _SIXTEEN.search(code(script)) if asked is not None and _is_float32(asked) else None
        if (asked is not None and half is None) or any(name.startswith("*") for name in call.arguments):
            continue
        attention = next(
            (
                setting.value
                for load in script.calls_of("from_pretrained")
                if (setting := load.arguments.get("attn_implementation")) and isinstance(setting.value, str)
            ),
            "",
        )
        flash = f", which {attention} does not take" if attention.startswith(FLASH) else ""
        fits = "float16" if half is not None and (half["fp16"] or half["float16"]) else "bfloat16"
        said = "without `bnb_4bit_compute_dtype`"
        if half is not None:
            said = f"with `bnb_4bit_compute_dtype=torch.float32` beside `{half[0]}`"
        yield Finding(
            f"`{call.name.rpartition('.')[2]}(load_in_4bit=True)` {said}: weights are expanded to"
            " float32 and"
            f" multiplied in it{flash}, past the GPU's matrix units, wherever autocast does not step in.",
            place=asked.place if asked is not None and asked.place.file == script.file else call.place,
            evidence=Evidence(
                Level.TEXT,
                {"load_in_4bit": True, "bnb_4bit_compute_dtype": f"float32 ({'given' if half else 'its default'})"},
            ),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Set `bnb_4bit_compute_dtype=torch.{fits}`"
                + (" in a `BitsAndBytesConfig`, given as `quantization_config`." if loads else "."),
                () if loads or half else (Change(Edit.SET, call.place, "bnb_4bit_compute_dtype", "bfloat16"),),
                accuracy=f"Products round to {fits}; the weights have four bits either way.",
                measure="dynotune profile -- python train.py",
            ),
        )


def four_bits_by_axolotl(job: Job) -> Iterator[Said]:
    """`bnb_config_kwargs` replace the type that Axolotl takes from `bf16` and `fp16`."""
    more = given(job, "bnb_config_kwargs") if job.trainer is Trainer.AXOLOTL else None
    named = more.value.get("bnb_4bit_compute_dtype") if more is not None and isinstance(more.value, dict) else None
    half = next((one for one in ("bf16", "fp16") if job.get(one) is True), "")
    if more is None or named not in ("float32", "torch.float32") or not half or job.get("load_in_4bit") is not True:
        return
    fits = {"bf16": "bfloat16", "fp16": "float16"}[half]
    yield Finding(
        f"`bnb_4bit_compute_dtype: {named}` beside `{half}: true`: weights of 4 bits are expanded to float32 and multiplied"
        " in it, past the GPU's matrix units, wherever autocast does not step in.",
        place=more.place,
        evidence=Evidence(Level.TEXT, {"load_in_4bit": True, "bnb_4bit_compute_dtype": named}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Take it out of `bnb_config_kwargs`, or write `{fits}`.",
            accuracy=f"Products round to {fits}; the weights have four bits either way.",
            measure="dynotune profile -- axolotl train FILE",
        ),
    )
