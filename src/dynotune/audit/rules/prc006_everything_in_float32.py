"""PRC006: the whole run computes in float32 on a GPU, or the 4-bit base of its adapters does."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import is_false, on_gpu
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import on_device, text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.told_precision import told_precision
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.asked_in_other_words import asked_in_other_words
from dynotune.audit.shapes.autocast_never_entered import autocast_never_entered
from dynotune.audit.shapes.four_bits_in_float32 import four_bits_by_axolotl, four_bits_in_float32
from dynotune.audit.shapes.only_told_to_be_16_bits import only_told_to_be_16_bits
from dynotune.audit.shapes.precision_that_nobody_gets import precision_that_nobody_gets
from dynotune.audit.shapes.second_model_in_float32 import second_model_in_float32

_TYPES = re.compile(
    r"autocast|bfloat16|float16|\.half\(|\bbf16|\bfp16|\bamp\b|[aA]ccelerat|deepspeed|allow_tf32|matmul_precision|fp32_precision"
    r"|[Ff]abric|getattr\(torch"
)
PUBLISHED_IN_BFLOAT16 = frozenset({"qwen2", "qwen3", "llama", "mistral", "gemma", "gemma2", "gemma3_text", "phi3"})
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    said = [found for job in project.jobs for found in _throughout(job, project)]
    yield from said
    if not said:
        words = [found for job in project.jobs for found in asked_in_other_words(job, project)]
        yield from words[:1]
        said = words[:1]
    if not said:
        yield from only_told_to_be_16_bits(project)
    for job in project.jobs:
        yield from four_bits_by_axolotl(job)
    for script in project.scripts:
        yield from four_bits_in_float32(script)
        yield from autocast_never_entered(script, project)
        yield from second_model_in_float32(script, project)


def _throughout(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.TORCH:
        yield from _of_a_loop(job, project)
        return
    # Axolotl has no default of `fp16`: not given, it is off.
    no_fp16 = is_false(job, "fp16") or (job.trainer is Trainer.AXOLOTL and not job.is_given("fp16"))
    if not is_false(job, "bf16") or not no_fp16 or not on_gpu(job):
        return
    if job.trainer not in (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.AXOLOTL, Trainer.LLAMA_FACTORY):
        return
    if (
        job.get("load_in_4bit") is True
        or job.get("load_in_8bit") is True
        or job.get("deepspeed")
        or any(job.get(name) is True for name in ("float16", "bfloat16"))  # Axolotl's: the weights' type
    ):
        return
    meant = _meant(job, project)
    if job.get("tf32") is True and (meant is None or not job.is_given("bf16")):
        return  # asked for, and the matrix units take it
    pinned = project.pinned("transformers")
    # Without a type it is the checkpoint's in transformers 5, and float32 before: only a pin tells.
    model = known(job.get("model_name_or_path"))
    trained_whole = model is not None and model.model_type in PUBLISHED_IN_BFLOAT16 and not job.get("use_peft")
    untyped = job.get("dtype") is None and bool(meant or trained_whole) and pinned is not None and pinned < (5,)
    # Axolotl loads in float32 by itself, where both switches are off.
    switched = job.trainer is Trainer.AXOLOTL and job.is_given("bf16") and job.get("dtype") is None
    typed = job.get("dtype") in ("float32", "fp32") or switched
    if job.get("mixed_precision") not in (None, "no") or not (typed or untyped):
        return
    if untyped and not typed and (_types_elsewhere(job, project) or any(precision_that_nobody_gets(job, project))):
        return
    if model is None and not job.is_given("bf16") and meant is None:
        return
    bf16, fp16 = job.called("bf16"), job.called("fp16")
    off = f"`{bf16}: false`" if job.is_given("bf16") else f"neither `{bf16}` nor `{fp16}`"
    yield Finding(
        f"Weights are float32 with {off}: every matrix product runs in "
        + (
            "TensorFloat-32, at half the speed of bfloat16 and with twice its memory."
            if job.get("tf32") is True
            else "float32, past the GPU's matrix units."
        ),
        place=job.place("bf16"),
        evidence=Evidence(Level.RESOLVED, {"bf16": False, "fp16": False, "dtype": job.get("dtype")}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{bf16}: true` (`{fp16}: true` on a GPU before Ampere); the weights stay float32.",
            (job.set("bf16", True),),
            accuracy="Products round to bfloat16: losses of a small model moved by 4e-3 at most in 60 steps.",
            measure="dynotune profile -- python train.py",
        ),
        also=() if meant is None else (meant,),
    )


_PRECISIONS = {
    "bf16": (True, "auto", "true"),
    "precision": ("bf16", "bfloat16"),
    "mixed_precision": ("bf16", "bfloat16"),
    "amp": (True, "bf16"),
}


def _meant(job: Job, project: Project) -> Place | None:
    """Where a configuration of a script's own, or a document, says that the run computes in 16 bits."""
    for config in project.configs:
        if config.kind != "unknown":
            continue
        for path, place in config.places.items():
            key = path.rpartition(".")[2]
            here = config.at(path)
            if key in _PRECISIONS and here in _PRECISIONS[key] and here is not None:
                return place
    return told_precision(project, job.files)


_CAST = re.compile(r"autocast|bfloat16|float16|\.half\(|\bfp16|getattr\(torch|FastLanguageModel")


def _types_elsewhere(job: Job, project: Project) -> bool:
    """The program's files may load or compute in 16 bits past the settings that were read, or were not all read."""
    scripts = [one for one in project.scripts if one.file in job.files]
    every = {one.file: one for script in scripts for one in connected(script, project)}
    return not every or bool(job.holes) or any(_CAST.search(code(one)) for one in every.values())


def _none_of_accelerate(job: Job, project: Project) -> Place | None:
    """Where the only configuration of accelerate's says `mixed_precision: no`, and no command and no call says otherwise."""
    files = [one for one in project.configs if one.kind == "accelerate"]
    if len(files) != 1 or files[0].values.get("mixed_precision") not in ("no", False, None):
        return None
    if any("mixed_precision" in one.launcher_flags or "mixed_precision" in one.flags for one in project.launches):
        return None
    if any(re.search(r"--mixed[_-]precision", text) for text in (*project.documents.values(), *project.texts.values())):
        return None
    for script in project.scripts:
        if script.file in job.files:
            for call in script.calls_of("Accelerator"):
                if "mixed_precision" in call.arguments or any(name.startswith("*") for name in call.arguments):
                    return None
    return files[0].places.get("mixed_precision", Place(files[0].file))


def _of_a_loop(job: Job, project: Project) -> Iterator[Said]:
    """A loop of one's own: nothing in its files switches to another type, and the weights are asked for in float32."""
    dtype = job.setting("dtype")
    if dtype is None:
        yield from _of_no_type(job, project)
        return
    if dtype.value not in ("float32", "fp32") or job.get("load_in_4bit") or job.get("load_in_8bit"):
        return
    scripts = [one for one in project.scripts if one.file in job.files]
    every = {one.file: one for script in scripts for one in connected(script, project)}
    text = "\n".join(_switched(one) for one in every.values())
    none = _none_of_accelerate(job, project)
    if job.get("mixed_precision") == "no" or none is not None:
        text = re.sub("[aA]ccelerat", "", text)  # which says so itself
    if not any(on_device(one) for one in every.values()) or _TYPES.search(text):
        return
    refused = job.get("mixed_precision") == "no" and job.is_given("mixed_precision")
    none = none or (job.place("mixed_precision") if refused else None)
    meant = _meant(job, project) if none is not None else None
    yield Finding(
        (f"{_who(none)} asks for `mixed_precision: no`, weights" if none is not None else "Weights")
        + " are float32 and nothing in the loop's files asks for another type: every matrix product runs in float32,"
        " past the GPU's matrix units"
        + (f", and `{meant.file}` says 16 bits (line {meant.line})." if meant is not None else "."),
        place=job.place("dtype"),
        evidence=Evidence(Level.RESOLVED, {"dtype": dtype.value, "files": sorted(every)}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            f"{_autocast_by(none)}; the weights stay float32.",
            effort=Effort.LINE,
            accuracy="Products round to bfloat16: losses of a small model moved by 4e-3 at most in 60 steps.",
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(one for one in (none, meant) if one is not None),
    )


def _autocast_by(none: Place | None) -> str:
    """What to do, where accelerate was told to stay in float32, or nobody was."""
    if none is None:
        return 'Run the forward pass under `torch.autocast("cuda", torch.bfloat16)`'
    if none.file.endswith((".yaml", ".yml", ".json")):
        return f"Set `mixed_precision: bf16` in `{none.file}`"
    if none.file.endswith((".py", ".ipynb")):
        return 'Give `Accelerator(mixed_precision="bf16")`'
    return "Give the launcher `--mixed_precision bf16`"


def _who(place: Place) -> str:
    return "`Accelerator(...)`" if place.file.endswith((".py", ".ipynb")) else "The launcher"


def _switched(script: Script) -> str:
    """The code without autocast that is known to be off, or to be the host's."""
    text = code(script)
    for call in script.calls_of("autocast"):
        enabled = call.arguments.get("enabled")
        device = call.arguments.get("0") or call.arguments.get("device_type")
        on_the_host = (
            device is not None and device.value == "cpu" and not device.others and call.name.startswith("torch")
        )
        if on_the_host or (enabled is not None and enabled.value is False and not enabled.others):
            text = text.replace(text_at(script, call.place), "")
    return text


def _of_no_type(job: Job, project: Project) -> Iterator[Said]:
    """A loop that says nothing of types, over all weights of a model that is published in bfloat16."""
    model = known(job.get("model_name_or_path"))
    name = job.setting("model_name_or_path")
    refused = job.get("mixed_precision") == "no" and job.is_given("mixed_precision")
    none = job.place("mixed_precision") if refused else _none_of_accelerate(job, project)
    # A document that says 16 bits tells what was meant of any model, with adapters too.
    meant = _meant(job, project) if none is not None else None
    if name is None or job.get("load_in_4bit") or job.get("load_in_8bit"):
        return
    published = model is not None and model.model_type in PUBLISHED_IN_BFLOAT16 and not job.get("use_peft")
    if not published and meant is None:
        return
    scripts = [one for one in project.scripts if one.file in job.files]
    every = {one.file: one for script in scripts for one in connected(script, project)}
    text = "\n".join(_switched(one) for one in every.values())
    if none is not None or (job.is_given("num_processes") and not job.is_given("mixed_precision")):
        text = re.sub("[aA]ccelerat", "", text)
    if not any(on_device(one) for one in every.values()) or _TYPES.search(text):
        return
    yield Finding(
        f"{_who(none)} asks for `mixed_precision: no`, and nothing else says in which type the model computes: transformers"
        " before 5 loads float32 and multiplies in it, past the GPU's matrix units; from 5 on it loads the checkpoint's"
        " bfloat16, and an optimizer's small steps round to nothing."
        if none is not None
        else "Nothing says in which type the model computes: transformers before 5 loads float32 and multiplies in"
        " it, past the GPU's"
        " matrix units; from 5 on it loads the checkpoint's bfloat16, and an optimizer's small steps round to nothing.",
        place=none or name.place,
        also=tuple(one for one in (name.place, meant) if none is not None and one is not None),
        evidence=Evidence(Level.RESOLVED, {"model": name.value, "dtype": None}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Load with `dtype=torch.float32`, and {_autocast_by(none)[0].lower()}{_autocast_by(none)[1:]}.",
            effort=Effort.MINUTES,
            accuracy="Products round to bfloat16, weights and their updates do not.",
            measure="dynotune profile -- python train.py",
        ),
    )


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


RULE = Rule(
    code="PRC006",
    name="everything-in-float32",
    summary="The run, or its 4-bit base, computes in float32.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Without `bf16` or `fp16`, and with weights in float32, PyTorch multiplies in float32; TensorFloat-32 is off"
        " unless asked for. 4-bit weights are expanded before they are multiplied, to a type that the configuration names:"
        " by default float32.",
        why="The matrix units that make a GPU fast take 16-bit numbers, and flash attention takes nothing else. Expanding to"
        " float32 writes twice as many bytes.",
        detected="E1: `bf16`, `fp16`, `dtype`, `tf32` and the launcher's precision as they resolve; for a loop of one's own,"
        " a `dtype` of float32 and no other type in its files. E0: `load_in_4bit=True` without `bnb_4bit_compute_dtype`,"
        " or with float32 in a script that asks for 16 bits elsewhere;"
        " where that is given by another object (`**options`), nothing is said; an autocast context that is made in a"
        " program with a loop of its own and that no `with` enters; a frozen model that is loaded without a type beside a"
        " trained"
        " one in 16 bits, under a transformers before 5.",
        proven="`dynotune profile -- python train.py` names the operand types of the matrix products.",
        deliberate=(
            "A parity study, where rounding is to be excluded.",
            "A model so small that the host bounds it.",
            "A GPU without bfloat16, where float16 overflows.",
        ),
        sources=(
            "60 steps of a small model, bfloat16 against float32: losses within 4e-3 (the project's parity study)",
            "transformers' documentation of `BitsAndBytesConfig`: `bnb_4bit_compute_dtype` defaults to float32",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}dtype: float32\nbf16: false\n"}, says="float32"),
    good=Example({"sft.yaml": f"{_SFT}dtype: float32\nbf16: true\n"}),
    also_bad=(
        Example({"train.py": _SCRIPT.format(arguments="load_in_4bit=True")}, says="without `bnb_4bit_compute_dtype`"),
    ),
    formerly=("PRC007",),
    former_names=("four-bits-in-float32",),
)
