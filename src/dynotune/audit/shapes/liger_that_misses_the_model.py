"""Liger's kernels are put into classes that the trained model is not of, or asked of a trainer that got a finished model."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place

_OF_TYPES = {
    "llama": ("llama",),
    "mistral": ("mistral",),
    "qwen2": ("qwen2",),
    "qwen3": ("qwen3",),
    "gemma": ("gemma",),
    "gemma2": ("gemma2",),
    "gemma3_text": ("gemma3_text", "gemma3"),
    "phi3": ("phi3",),
    "olmo2": ("olmo2",),
}
"""Model types that a name tells, with the ends of the functions that patch them."""

_PATCH = re.compile(r"^apply_liger_kernel_to_(\w+)$")
BY_PATH_ALONE = ((0, 12), (0, 17))
"""Releases of TRL whose `use_liger` loads a model that is given by its path, and looks at no other."""


def liger_that_misses_the_model(job: Job, project: Project) -> Iterator[Said]:
    start = next((one for one in project.scripts if one.file in job.files), None)
    program = connected(start, project) if start is not None else ()
    first = next((one for one in project.jobs if start is not None and start.file in one.files), job)
    if first is not job or not any("liger" in one.source for one in program):
        return
    patches = [
        (found[1], call)
        for one in program
        for call in one.calls
        if (found := _PATCH.match(call.name.rpartition(".")[2]))
    ]
    named = job.get("model_name_or_path")
    model = known(named)
    if patches and model is not None and model.model_type in _OF_TYPES:
        if not any(name in _OF_TYPES[model.model_type] for name, _ in patches):
            name, call = patches[0]
            yield _finding(
                f"`apply_liger_kernel_to_{name}` patches the classes of another family: `{named}` is of type"
                f" `{model.model_type}`, and runs without any of Liger's kernels.",
                call.place,
                f"Call `apply_liger_kernel_to_{_OF_TYPES[model.model_type][0]}`.",
            )
        return
    key, version = given(job, "use_liger"), project.pinned("trl")
    if key is None or key.value is not True or version is None or not BY_PATH_ALONE[0] <= version < BY_PATH_ALONE[1]:
        return
    if job.trainer is not Trainer.TRL or any(re.search(r"AutoLigerKernel|_apply_liger", one.source) for one in program):
        return
    made = {call.result for one in program for call in one.calls_of("from_pretrained") if "Model" in call.name} - {""}
    for one in program:
        for call in one.calls_of("SFTTrainer"):
            handed = re.match(r"\w*SFTTrainer\(\s*(?:model=)?(\w+)\s*[,)]", text_at(one, call.place))
            named_so = re.search(r"\bmodel=(\w+)\s*[,)]", text_at(one, call.place))
            if {found[1] for found in (handed, named_so) if found} & made:
                shown = ".".join(map(str, version))
                yield _finding(
                    f"`use_liger: true` of TRL {shown} loads models that are given by their path, and this trainer gets one"
                    " that is loaded already: it runs without Liger's kernels, and nothing says so.",
                    key.place,
                    "Load it by `AutoLigerKernelForCausalLM.from_pretrained`, or give the trainer its name.",
                )
                return


def _finding(message: str, place: Place, text: str) -> Finding:
    return Finding(
        message,
        place=place,
        evidence=Evidence(Level.TEXT, {"kernels": None}),
        stake=Stake(AtStake.MEMORY, source="the logits, which Liger's loss never holds"),
        remedy=Remedy(
            Risk.NUMERIC, text, accuracy="Sums round otherwise.", measure="dynotune profile -- python train.py"
        ),
    )
