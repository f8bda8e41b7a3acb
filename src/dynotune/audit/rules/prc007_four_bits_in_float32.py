"""PRC007: a 4-bit base computes in float32, since nobody said otherwise."""

import re
from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import FLASH
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SCRIPT = """\
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

quantization = BitsAndBytesConfig({arguments})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", quantization_config=quantization)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out"), peft_config=LoraConfig(), train_dataset=None)
trainer.train()
"""


def check(script: Script, project: Project) -> Iterator[Said]:
    for call in script.calls_of("BitsAndBytesConfig", "from_pretrained"):
        four = call.arguments.get("load_in_4bit")
        if not call.name.startswith("transformers.") or four is None or four.value is not True:
            continue
        loads = call.name.endswith("from_pretrained")
        if loads and ("quantization_config" in call.arguments or not re.search(r"Model|LM\b", call.name)):
            continue
        if "bnb_4bit_compute_dtype" in call.arguments or any(name.startswith("*") for name in call.arguments):
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
        yield Finding(
            f"`{call.name.rpartition('.')[2]}(load_in_4bit=True)` without `bnb_4bit_compute_dtype`: weights are expanded to"
            " float32 and"
            f" multiplied in it{flash}, past the GPU's matrix units, wherever autocast does not step in.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"load_in_4bit": True, "bnb_4bit_compute_dtype": "float32 (its default)"}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC,
                "Set `bnb_4bit_compute_dtype=torch.bfloat16`"
                + (" in a `BitsAndBytesConfig`, given as `quantization_config`." if loads else "."),
                () if loads else (Change(Edit.SET, call.place, "bnb_4bit_compute_dtype", "bfloat16"),),
                accuracy="Products round to bfloat16; the weights have four bits either way.",
                measure="dynotune profile -- python train.py",
            ),
        )


RULE = Rule(
    code="PRC007",
    name="four-bits-in-float32",
    summary="A 4-bit base computes in float32 by default.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="4-bit weights are expanded before they are multiplied, to a type that the configuration names. Its default is"
        " float32.",
        why="Expanding writes twice as many bytes, and float32 products go past the matrix units. Flash attention"
        " does not take"
        " float32 at all.",
        detected="E0: the call without the argument. Where it is given by another object (`**options`), nothing is said.",
        proven="`dynotune profile -- python train.py` names the operand types of the matrix products.",
        deliberate=("A GPU without bfloat16, where float16 overflows.",),
        sources=("transformers' documentation of `BitsAndBytesConfig`: `bnb_4bit_compute_dtype` defaults to float32",),
    ),
    bad=Example({"train.py": _SCRIPT.format(arguments="load_in_4bit=True")}, says="without `bnb_4bit_compute_dtype`"),
    good=Example(
        {"train.py": _SCRIPT.format(arguments="load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16")},
    ),
)
