"""Liger's fused loss is asked for where the trainer's release refuses it under adapters, or leaves it out in this stage."""

from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.facts.asked import adapters, version
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake


@dataclass(frozen=True, slots=True)
class _Refusal:
    trainer: str
    keys: tuple[str, ...]
    since: tuple[int, ...]
    until: tuple[int, ...]
    """The first release that takes both."""

    says: str


_REFUSALS = (
    _Refusal("GRPO", ("use_liger_loss",), (0, 17), (0, 18), "Liger loss is not supported with a PEFT model"),
    _Refusal("DPO", ("use_liger_kernel",), (0, 29), (1, 7), "Liger DPO loss is not implemented for PEFT models"),
    _Refusal("KTO", ("use_liger_loss", "use_liger_kernel"), (0, 17), (1, 7), "You cannot use Liger with Peft models"),
)
"""By TRL's sources."""


def ligers_loss_refused(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.LLAMA_FACTORY:
        yield from _left_out(job)
    if job.trainer not in (Trainer.TRL, Trainer.UNSLOTH) or adapters(job) is not True:
        return
    asked = version(job, "trl")
    for one in _REFUSALS:
        key = next((name for name in one.keys if job.get(name) is True and job.is_given(name)), "")
        if not key or asked is None or not one.since <= asked < one.until or trained_by(job, project) != one.trainer:
            continue
        shown, fixed = (".".join(map(str, numbers)) for numbers in (asked, one.until))
        yield Finding(
            f"`{job.called(key)}: true` with adapters: {one.trainer}Trainer of TRL {shown} refuses both together"
            f' ("{one.says}"), and the run stops.',
            place=job.place(key),
            evidence=Evidence(Level.RESOLVED, {"trl": shown, key: True, "adapters": True}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.SAFE,
                f"Take `{job.called(key)}` out, or ask for trl>={fixed}, which takes both.",
                (job.remove(key),),
            ),
            also=(job.place("use_peft"),),
        )


def trained_by(job: Job, project: Project) -> str:
    """`DPO`, `KTO`, `GRPO`: whose trainer of TRL's takes the steps. Empty: another, or it is not told."""
    if job.method is Method.DPO:
        return "DPO"
    programs = {launch.program for launch in project.launches if launch.file in job.files}
    scripts = [one for one in project.scripts if one.file in job.files]
    named = {
        name
        for name in ("DPO", "KTO", "GRPO", "BCO")
        if f"trl {name.lower()}" in programs or any(one.calls_of(f"{name}Config", f"{name}Trainer") for one in scripts)
    }
    return named.pop() if len(named) == 1 else ""


_WITHOUT_LOGITS = frozenset({"pt", "sft"})


def _left_out(job: Job) -> Iterator[Said]:
    """LLaMA-Factory needs logits in every other stage, and takes the kernels without the fused loss."""
    stage = job.get("stage")
    if job.get("use_liger_kernel") is not True or not isinstance(stage, str) or stage in _WITHOUT_LOGITS:
        return
    key = job.called("use_liger_kernel")
    yield Finding(
        f"`{key}: true` in stage `{stage}`: LLaMA-Factory needs the logits there and leaves Liger's fused"
        ' loss out ("Current training stage does not support chunked cross entropy"), so that all logits are'
        " made as without it; norms, rotary embedding and activation are replaced.",
        place=job.place("use_liger_kernel"),
        evidence=Evidence(Level.RESOLVED, {"stage": stage, key: True}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.NUMERIC,
            "Count on no memory of the logits: make the micro-batch or `cutoff_len` smaller where they do not fit. Keep the"
            " key for the layers' kernels alone.",
            measure="Compare the peak of memory with and without it.",
        ),
        also=(job.place("stage"),),
    )
