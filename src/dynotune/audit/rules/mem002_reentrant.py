"""MEM002: checkpointing by the re-entrant implementation."""

from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import adapters, number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ngradient_checkpointing: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    kwargs = job.get("gradient_checkpointing_kwargs")
    if not isinstance(kwargs, Mapping) or kwargs.get("use_reentrant") is not True:
        return
    if job.get("gradient_checkpointing") is False or job.trainer is Trainer.DYNOTUNE:
        return
    processes, lora = number(job, "num_processes"), adapters(job)
    several = processes is not None and processes > 1
    troubles = ["it replays the forward pass inside the backward one, which compiled code and hooks do not expect"]
    if several:
        troubles.append("several processes may fail with `marked ready twice`")
    if lora:
        troubles.append("with a frozen base it needs inputs that require gradients")
    yield Finding(
        "`use_reentrant: true` is checkpointing's old implementation, which PyTorch advises against:"
        f" {'; '.join(troubles)}.",
        place=job.place("gradient_checkpointing_kwargs"),
        evidence=Evidence(Level.RESOLVED, {"use_reentrant": True, "processes": processes, "adapters": lora}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.SAFE,
            "Set `use_reentrant: false`.",
            (job.set("gradient_checkpointing_kwargs", {**kwargs, "use_reentrant": False}),),
        ),
    )


RULE = Rule(
    code="MEM002",
    name="reentrant-checkpointing",
    summary="Gradient checkpointing uses the re-entrant implementation.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="PyTorch has two implementations of checkpointing; the one without re-entry is recommended and becomes the"
        " default.",
        why="The old one runs a backward pass inside the backward pass: it gives up on compiled regions, breaks with DDP"
        " where a parameter is used twice, and gives no gradient where no input needs one.",
        detected="E1: `gradient_checkpointing_kwargs: {use_reentrant: true}`, given.",
        proven="Both give the same gradients.",
        deliberate=("A model whose forward pass the other one cannot replay (it compares what is saved).",),
        sources=("PyTorch's documentation of `torch.utils.checkpoint`; TorchFix's rule TOR003",),
    ),
    bad=Example(
        {"sft.yaml": f"{_SFT}gradient_checkpointing_kwargs:\n  use_reentrant: true\n"}, says="PyTorch advises against"
    ),
    good=Example({"sft.yaml": f"{_SFT}gradient_checkpointing_kwargs:\n  use_reentrant: false\n"}),
)
