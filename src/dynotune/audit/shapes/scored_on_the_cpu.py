"""A program without training computes its rows on the host."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.over_rows import lines_over_rows
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.put_on import MOVES, is_given_on, is_moved_at_once, name_of
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import code, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known

LARGE = 3.0
"""Billions of parameters from which on nobody generates on a host's cores of his own free will."""

_SAYS = re.compile(r"\b(?:on|with|the|a|one) (?:GPU|cuda)\b|\bcuda\b(?!\.is_available)")
"""What the file says of where it runs."""


_GPU = re.compile(
    r"\.cuda\(|[\"']cuda\b|\bAccelerator\(|\bnccl\b|autocast\(|gres=gpu|--gpus|CUDA_VISIBLE_DEVICES|--nproc[_-]per[_-]node"
    r"|\baccelerate launch\b|\b(?:bf16|fp16)\s*[=:]\s*[Tt]rue|--(?:bf16|fp16)\b"
    r"|mixed_precision[\"']?\s*[=:]\s*[\"']?(?:bf16|fp16)"
)
"""What a program that trains says where it does so on a GPU."""


_ASKS = re.compile(
    r"\binput\(|set_num_threads|gradio|streamlit|fastapi|flask|uvicorn|onnx|openvino|add_argument\([\"']--device|\bpytest\b"
)
"""Of a program for one question at a time, or for a host on purpose."""

_TEST = re.compile(r"(?:^|/)tests?/|(?:^|/)test_[^/]*$|_test\.py$|(?:^|/)conftest\.py$")
_ON_THE_HOST = re.compile(r"\b(?:on|without|no|a|the) (?:a |the |any )?(?:laptop|CPU|GPU-less)\b", re.IGNORECASE)


def _trained_on_a_gpu(script: Script, project: Project) -> bool:
    """Another program of the project trains, and the project's code, launchers or configurations have a GPU for it."""
    others = [one for one in project.scripts if one.file != script.file]
    trains = any(any(loops(one)) or re.search(r"Trainer\(|\btrainer\.train\(", one.source) for one in others)
    sources = [code(one) for one in others]
    sources += [
        re.sub(r"(?m)(^|\s)#(?!SBATCH).*$", "", text)
        for file, text in project.texts.items()
        if not file.endswith((".py", ".ipynb", ".md"))
    ]
    if _ASKS.search(code(script)) or any(_ON_THE_HOST.search(text) for text in project.documents.values()):
        return False
    return trains and any(_GPU.search(one) for one in sources)


def scored_on_the_cpu(script: Script, project: Project) -> Iterator[Said]:
    """A program without training that runs one model where it was loaded: in 16 bits, a large one, in a file that speaks
    of the GPU, or over rows in a project that trains on one."""
    if _TEST.search(script.file):
        return  # a few rows, where nobody waits for them
    yield from _of_ones_own(script, project)
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
    named = call.arguments.get("pretrained_model_name_or_path") or call.arguments.get("0")
    model = known(named.value) if named is not None else None
    large = model is not None and (model.billions or 0) >= LARGE
    says = bool(_SAYS.search(script.source))
    if {"device_map", "quantization_config", "load_in_4bit", "load_in_8bit", "**", "device"} & set(
        call.arguments
    ) or not (half or large or says or _trained_on_a_gpu(script, project)):
        return
    names = "|".join(re.escape(one) for one in {name, *(one.result for one in wraps if one.result)})
    follows = rf"\.to\(\s*(device\s*=\s*)?({names})\.device\b"
    handed = re.sub(rf"(PeftModel\w*\.from_pretrained|get_peft_model)\(\s*({names})\b", "(", source)
    if MOVES.search(re.sub(follows, "(", source)) or any(is_given_on(one, handed) for one in names.split("|")):
        return
    if any({"device_map", "**"} & set(one.arguments) or is_moved_at_once(script, one) for one in wraps):
        return
    runs = [one for one in script.calls if re.match(rf"({names})(\.generate)?\(", text_at(script, one.place))]
    repeated = lines_over_rows(script)
    asked = [one for one in runs if one.place.line in repeated]
    if half or large or says:
        asked = asked or [one for one in runs if text_at(script, one.place).partition("(")[0].endswith(".generate")]
    if asked:
        yield Finding(
            f"`{name}` is loaded to the CPU and nothing moves it: all rows are computed there"
            f"{', in 16 bits' if half else ''}.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC, 'Give `device_map="cuda"`, or `.to("cuda")`.', measure="nvidia-smi while it runs"
            ),
            also=(asked[0].place,),
        )


_FOLLOWS = re.compile(r"[(,]\s*device\s*=\s*\w+\.device\b|\.to\(\s*(?:device\s*=\s*)?\w+\.device\b")
_LOADS = re.compile(r"\.load_state_dict\(|\bload_model\(|\bload_file\(|torch\.load\(|load_checkpoint\(")


def _of_ones_own(script: Script, project: Project) -> Iterator[Said]:
    """A model of the project's own class, with weights from a file, in a file that speaks of the GPU and moves nothing."""
    source = code(script)
    plain = _FOLLOWS.sub("(", source)
    if any(loops(script)) or not _LOADS.search(source) or MOVES.search(plain) or re.search(r"[\"']cpu[\"']", source):
        return
    if not _SAYS.search(script.source) or not re.search(r"inference_mode|no_grad", source):
        return
    own = {
        node.name
        for one in (script, *imported(script, project))
        for node in one.tree.body
        if isinstance(node, ast.ClassDef) and any("Module" in ast.unparse(base) for base in node.bases)
    }
    for call in script.calls:
        name = name_of(script, call)
        if call.name.rpartition(".")[2] not in own or not name or is_moved_at_once(script, call):
            continue
        runs = [one for one in script.calls if any(around.kind in ("for", "while") for around in one.around)]
        asked = [one for one in runs if re.match(rf"{re.escape(name)}(\.\w+)?\(", text_at(script, one.place))]
        asked = asked or [one for one in script.calls if text_at(script, one.place).startswith(f"{name}.generate(")]
        if asked:
            yield Finding(
                f"`{name}` is made on the CPU and nothing moves it, in a file that speaks of the GPU: all of it is computed"
                " on the host.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"made by": call.name, "moved by": None}),
                stake=Stake(AtStake.TIME),
                remedy=Remedy(
                    Risk.NUMERIC, f'`{name}.to("cuda")`, and its inputs with it.', measure="nvidia-smi while it runs"
                ),
                also=(asked[0].place,),
            )
            return


def _first_argument(script: Script, call: Call) -> str:
    """A name, as it stands behind the bracket."""
    found = re.search(r"from_pretrained\(\s*(\w+)\s*,", text_at(script, call.place))
    return found[1] if found is not None else ""
