"""A program without training computes its rows on the host."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.put_on import MOVES, is_given_on, is_moved_at_once, name_of
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake


def scored_on_the_cpu(script: Script) -> Iterator[Said]:
    """A program without training that loads one model in 16 bits and runs it over rows where it was loaded."""
    source = code(script)
    if (
        any(loops(script))
        or not re.search(r"inference_mode|no_grad|\.generate\(", source)
        or re.search(r"[\"']cpu[\"']|Trainer\(|pipeline\(", source)
    ):
        return
    loaded = [
        call
        for call in script.calls
        if call.name.startswith(("transformers.", "peft.")) and call.name.endswith("from_pretrained")
        if re.search(r"Model|LM\b|ForSequence", call.name)
    ]
    # `PeftModel.from_pretrained(model, ...)` puts adapters onto what is loaded already, where that is.
    bases = {one.result for one in loaded if not one.name.startswith("peft.PeftModel")} - {""}
    wraps = [one for one in loaded if _first_argument(script, one) in bases]
    loaded = [one for one in loaded if one not in wraps]
    if len(loaded) != 1 or not (name := name_of(script, loaded[0])):
        return
    (call,) = loaded
    given = call.arguments.get("torch_dtype") or call.arguments.get("dtype")
    half = given is not None and given.value in ("bfloat16", "float16")
    if {"device_map", "quantization_config", "load_in_4bit", "load_in_8bit", "**", "device"} & set(
        call.arguments
    ) or not half:
        return
    names = "|".join(re.escape(one) for one in {name, *(one.result for one in wraps if one.result)})
    follows = rf"\.to\(\s*(device\s*=\s*)?({names})\.device\b"
    handed = re.sub(rf"(PeftModel\w*\.from_pretrained|get_peft_model)\(\s*({names})\b", "(", source)
    if MOVES.search(re.sub(follows, "(", source)) or any(is_given_on(one, handed) for one in names.split("|")):
        return
    if any({"device_map", "**"} & set(one.arguments) or is_moved_at_once(script, one) for one in wraps):
        return
    asked = [one for one in script.calls if any(around.kind in ("for", "while") for around in one.around)]
    asked = [one for one in asked if re.match(rf"({names})(\.generate)?\(", text_at(script, one.place))]
    if asked:
        yield Finding(
            f"`{name}` is loaded to the CPU and nothing moves it: all rows are computed there, in 16 bits.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
            stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
            remedy=Remedy(
                Risk.NUMERIC, 'Give `device_map="cuda"`, or `.to("cuda")`.', measure="nvidia-smi while it runs"
            ),
            also=(asked[0].place,),
        )


def _first_argument(script: Script, call: Call) -> str:
    """A name, as it stands behind the bracket."""
    found = re.search(r"from_pretrained\(\s*(\w+)\s*,", text_at(script, call.place))
    return found[1] if found is not None else ""
