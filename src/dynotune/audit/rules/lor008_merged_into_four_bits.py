"""LOR008: an adapter is merged into a base of four bits, and that is saved."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_BY_ANOTHER = re.compile(r"Peft\w*\.from_pretrained\(\s*(?:model\s*=\s*)?(?!\w*prepare_)[a-z]\w*\(|\.dequantize\(")
"""The base that an adapter is put on comes of a function of the project's, or is made of 16 bits again."""


def check(script: Script, project: Project) -> Iterator[Said]:
    quantized = [
        call
        for call in script.calls
        if (four := call.arguments.get("load_in_4bit") or call.arguments.get("load_in_8bit")) is not None
        and four.value is True
    ]
    if not quantized or "unsloth" in script.source:
        return
    merges = [call for call in script.calls if call.name.rpartition(".")[2] == "merge_and_unload"]
    loads = [call for call in script.calls_of("from_pretrained") if re.search(r"Model", call.name)]
    bases = [call for call in loads if "Peft" not in call.name]
    again = [call for call in bases if call.place.line > max(one.place.line for one in quantized) + 12]
    whole = [call for call in loads if "AutoPeft" in call.name and call not in quantized and not _quantizes(call)]
    if not merges or again or whole or len(bases) > 1 or _BY_ANOTHER.search(code(script)):
        return  # a base is loaded again, to merge into
    bits = "4" if "load_in_4bit" in quantized[0].arguments else "8"
    yield Finding(
        f"The adapter is merged into the base of {bits} bits: the sum is rounded to {bits} bits, and what is"
        f" saved is a quantised"
        " model.",
        place=merges[0].place,
        evidence=Evidence(Level.TEXT, {"bits": bits}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Save the adapter; load the base in bfloat16 (`PeftModel.from_pretrained(base, adapter)`) and merge there.",
            accuracy="The merged weights are rounded to bfloat16 alone.",
        ),
        also=(quantized[0].place,),
    )


def _quantizes(call: Call) -> bool:
    return bool({"quantization_config", "load_in_4bit", "load_in_8bit", "**"} & set(call.arguments))


_SCRIPT = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype="bfloat16")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", quantization_config=four)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32))
"""
RULE = Rule(
    code="LOR008",
    name="merged-into-four-bits",
    summary="An adapter is merged into a quantised base.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`merge_and_unload` adds the adapter to the weights that are there. In a base of four bits it"
        " expands them, adds, and"
        " rounds to four bits again.",
        why="The rounding is of the size of what the adapter learned, and servers get a quantised model where a"
        " plain one was"
        " expected.",
        detected="E0: a base is loaded in four or eight bits, the adapter is merged, and no other base is loaded for it.",
        proven="Compare held-out loss of base plus adapter with that of the merged model.",
        deliberate=("A quantised model is what is to be served.",),
        sources=("PEFT's `merge_and_unload` of bitsandbytes layers, and its warning on rounding",),
    ),
    bad=Example(
        {"train.py": _SCRIPT + 'model.merge_and_unload().save_pretrained("merged")\n'}, says="rounded to 4 bits"
    ),
    good=Example({"train.py": _SCRIPT + 'model.save_pretrained("adapter")\n'}),
)
