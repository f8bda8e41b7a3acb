"""PRC003: bfloat16 is asked for on a GPU that has none."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dynotune.audit.facts.asked import adapters, on_gpu
from dynotune.audit.facts.cards import older_card
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject

AMPERE = 8
"""The first compute capability with bfloat16 matrix units."""


def check(job: Job, project: Project) -> Iterator[Said]:
    asked = _asked(job)
    if project.environment is None:
        casts = next(_casts(job, project), None) if not asked else None
        card = older_card(job, project) if casts or (asked and job.is_given(asked) and on_gpu(job)) else ""
        if card:
            found = _finding(job, asked, card, Level.TEXT, {"GPU": card})
            yield (
                found if casts is None else replace(found, message=_of_a_cast(card), place=casts, remedy=_UNDER_A_CAST)
            )
        else:
            yield NotChecked(NONE_OF[Subject.ENVIRONMENT])
        return
    old = [gpu for gpu in project.environment.gpus if int(str(gpu["capability"]).partition(".")[0]) < AMPERE]
    if old and asked and on_gpu(job):
        name, capability = old[0]["name"], old[0]["capability"]
        facts = {"GPU": name, "capability": capability}
        yield _finding(job, asked, f"{name} (capability {capability})", Level.PROBED, facts)


def _casts(job: Job, project: Project) -> Iterator[Place]:
    """`torch.autocast("cuda", dtype=torch.bfloat16)` around a loop's own steps."""
    for script in project.scripts if job.trainer is Trainer.TORCH else ():
        if script.file in job.files and not re.search(r"bf16_supported|get_device_capability", script.source):
            for call in script.calls_of("autocast"):
                given = call.arguments.get("dtype")
                if given is not None and given.value == "bfloat16" and not given.others:
                    yield call.place


def _of_a_cast(card: str) -> str:
    return f"`autocast` computes in bfloat16, and {card} has no units for it: it is emulated more slowly than float32."


def _asked(job: Job) -> str:
    """The setting that asks for it; empty: none does."""
    if job.get("bf16") is True:
        return "bf16"
    return next((name for name, value in _VALUES.items() if job.get(name) == value), "")


_VALUES = {"mixed_precision": "bf16", "dtype": "bfloat16"}


def _finding(job: Job, asked: str, card: str, level: Level, facts: Mapping[str, Any]) -> Finding:
    return Finding(
        f"`{job.called(asked)}` asks for bfloat16, and {card} has no units for it: it is refused, or emulated more slowly"
        " than float32.",
        place=job.place(asked),
        evidence=Evidence(level, facts),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.NUMERIC, _remedy(job, asked), accuracy=_ACCURACY),
    )


_ACCURACY = "float16 has a smaller range: its gradients are scaled, and steps that overflow are left out."
_UNDER_A_CAST = Remedy(
    Risk.NUMERIC,
    "Cast to `torch.float16`, with a `torch.amp.GradScaler` around backward and step; the weights stay float32.",
    accuracy=_ACCURACY,
)


def _remedy(job: Job, asked: str) -> str:
    """In the words of what is trained: a quantised base, a frozen one under adapters, or all weights."""
    if asked == "mixed_precision":
        return "Set `mixed_precision: fp16`; trained weights stay float32."
    fp16, bf16 = job.called("fp16"), job.called("bf16")
    set_ = f"Set `{fp16}: true` and `{bf16}: false`" if job.trainer is not Trainer.TORCH else "Compute in float16"
    if job.get("load_in_4bit") is True:
        compute = (
            ""
            if job.trainer in (Trainer.AXOLOTL, Trainer.LLAMA_FACTORY, Trainer.UNSLOTH)
            else (", and `bnb_4bit_compute_dtype=torch.float16`")
        )
        return f"{set_}{compute}."
    if adapters(job):
        return f"{set_}; the frozen base may be float16, adapters stay float32."
    return f"{set_}, with weights in float32."


_SFT = "# one Tesla {}, 16 GB\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nbf16: true\n"
RULE = Rule(
    code="PRC003",
    name="no-bfloat16-here",
    summary="bfloat16 is asked for on a GPU without it.",
    group=Group.ENVIRONMENT,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="GPUs before Ampere (V100, T4, RTX 20) have matrix units for float16 and none for bfloat16.",
        why="Some versions refuse; others emulate bfloat16 without the matrix units and are slow.",
        detected="E2, with `--env`: the capability of this machine's GPUs against the resolved `bf16`, `mixed_precision` and"
        " `dtype`. E0, without it: such a GPU is the one that the job's files, a notebook's text or the project's documents"
        " name, and no newer one.",
        proven="`dynotune env` prints the capability.",
        deliberate=("The training runs on another machine than the audit.",),
        sources=("NVIDIA's table of compute capabilities: bfloat16 matrix units from 8.0 on",),
    ),
    bad=Example({"sft.yaml": _SFT.format("T4")}, says="`bf16` asks for bfloat16, and Tesla T4"),
    good=Example({"sft.yaml": _SFT.format("A30")}),
)
