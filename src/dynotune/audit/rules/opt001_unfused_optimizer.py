"""OPT001: AdamW that updates tensor by tensor where one kernel would do."""

import re
from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import on_device
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"

UNFUSED = frozenset({"adamw_torch", "adamw_hf"})


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.TORCH:
        yield from _of_a_loop(job, project)
        return
    optim = job.setting("optim")
    if (
        optim is None
        or not isinstance(optim.value, str)
        or optim.value not in UNFUSED
        or job.runs_on_gpu is False
        or job.trainer is Trainer.DYNOTUNE
    ):
        return
    yield Finding(
        f"`{job.called('optim')}: {optim.given_value or optim.value}` launches several kernels for each group of weights;"
        " the fused one computes the same in one.",
        place=job.place("optim"),
        evidence=Evidence(Level.RESOLVED, {"optim": optim.value, "given": job.is_given("optim")}),
        stake=Stake(AtStake.TIME, 0.0, 0.03, "full training of a 0.5B to 7B model; nothing measurable under LoRA"),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('optim')}: adamw_torch_fused`.",
            (job.set("optim", "adamw_torch_fused"),),
            measure="dynotune bench --config sft.yaml --set optim=adamw_torch_fused",
        ),
    )


def _of_a_loop(job: Job, project: Project) -> Iterator[Said]:
    """A loop of one's own that makes AdamW without saying how, and trains whole models with it."""
    for script in (one for one in project.scripts if one.file == job.home.file and on_device(one)):
        if re.search(r"peft|lora|deepspeed|Offload|fully_shard|FSDP", script.source, re.IGNORECASE):
            return
        for call in script.calls:
            told = {"fused", "foreach", "capturable", "differentiable"} & set(call.arguments) or "**" in call.arguments
            if call.name not in ("torch.optim.AdamW", "torch.optim.Adam") or told:
                continue
            yield Finding(
                f"`{call.name.removeprefix('torch.')}` without `fused=True` launches several kernels for each"
                f" group of weights;"
                " the fused one computes the same in one.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"optimizer": call.name, "fused": False}),
                stake=Stake(AtStake.TIME, 0.0, 0.03, "full training of a 0.5B to 7B model"),
                remedy=Remedy(
                    Risk.SAFE,
                    "Pass `fused=True`.",
                    (Change(Edit.SET, call.place, "fused", True),),
                    measure="dynotune profile -- python train.py",
                ),
            )
            return


RULE = Rule(
    code="OPT001",
    name="unfused-optimizer",
    summary="AdamW runs without its fused kernel.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="PyTorch's AdamW can update all weights in one kernel a dtype (`fused`), or by several kernels over groups.",
        why="The update moves every weight, gradient and state through memory; unfused it moves them several times.",
        detected="E1: the resolved `optim`. With a profile (E3), by the number of kernels of the update.",
        proven="`dynotune profile --config sft.yaml` names the optimizer's share of the step.",
        deliberate=("A parameter on the CPU or of another type than floating point, which the fused kernel refuses.",),
        sources=("PyTorch's documentation of `torch.optim.AdamW`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}optim: adamw_torch\n"}, says="fused"),
    good=Example({"sft.yaml": f"{_SFT}optim: adamw_torch_fused\n"}),
)
