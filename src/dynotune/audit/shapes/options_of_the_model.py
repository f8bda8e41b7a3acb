"""TRL's `ModelConfig` takes an option, and the script that loads the model itself does not give it on."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import GivenKey, Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_READ_BY = {
    "attn_implementation": r"\battn_implementation\b",
    "dtype": r"\.(torch_)?dtype\b",
    "torch_dtype": r"\.(torch_)?dtype\b",
    "model_revision": r"\.model_revision\b",
    "load_in_4bit": r"\.load_in_4bit\b|get_quantization_config",
    "load_in_8bit": r"\.load_in_8bit\b|get_quantization_config",
}
"""Options of the loading, and what reads each: nothing of TRL's trainers does."""

_WHOLE = re.compile(
    r"\bvars\(|asdict\(|__dict__|get_model_and_tokenizer|\*\*\w*(model|kwargs)\w*|getattr\(\s*model_(args|config)"
)
_PARSES = re.compile(r"\b(TrlParser|HfArgumentParser)\(")
_HANDED = re.compile(r"\b(\w+)\([^()\n]*\bmodel_(?:args|config)\b(?![.\w=])")
_OF_TRL = frozenset({"get_peft_config", "get_quantization_config", "get_kbit_device_map", "print", "info"})


def options_of_the_model(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is not Trainer.TRL:
        return
    for script in project.scripts:
        if script.file in job.files and "ModelConfig" in script.source and _PARSES.search(script.source):
            yield from _left_behind(job, script, project)
            return


def _left_behind(job: Job, script: Script, project: Project) -> Iterator[Said]:
    near = together(script, project)
    text = "\n".join(code(one) for one in near)
    loads = [
        call for one in near for call in one.calls if call.name.endswith("from_pretrained") and "Model" in call.name
    ]
    if not loads or _WHOLE.search(text) or any("**" in name for call in loads for name in call.arguments):
        return
    own = {name for one in near for name in re.findall(r"def (\w+)\(", one.source)}
    if any(name not in own | _OF_TRL for name in _HANDED.findall(text)):
        return
    lost: list[GivenKey] = []
    for name, reads in _READ_BY.items():
        key = given(job, name)
        if key is not None and key.value not in (None, False, "") and not re.search(reads, text):
            lost.append(key)
    if not lost or any(key.place.file.endswith((".py", ".ipynb")) for key in lost):
        return
    names = ", ".join(f"`{key.name}: {key.value}`" for key in lost)
    yield Finding(
        f"{names} {'do' if len(lost) > 1 else 'does'} nothing here: TRL's `ModelConfig` takes it, and `{script.file}` loads"
        " the model without it.",
        place=lost[0].place,
        also=(*(key.place for key in lost[1:]), loads[0].place),
        evidence=Evidence(Level.RESOLVED, {key.name: key.value for key in lost}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give it to `from_pretrained`, or hand the trainer the model's name and `model_init_kwargs`.",
            accuracy="What is loaded then is what the configuration says.",
        ),
    )
