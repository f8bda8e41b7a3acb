"""CKP002: checkpoints without what resuming needs, in a job that resumes."""

from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nresume_from_checkpoint: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("save_only_model") is not True or job.trainer is Trainer.DYNOTUNE:
        return
    if not job.get("resume_from_checkpoint"):
        yield from _on_the_way(job)
        return
    yield Finding(
        f"`{job.called('save_only_model')}: true` leaves the optimizer, the schedule and the random numbers out of"
        " checkpoints,"
        f" and `{job.called('resume_from_checkpoint')}` resumes from one: the optimizer begins anew.",
        place=job.place("save_only_model"),
        evidence=Evidence(
            Level.RESOLVED, {"save_only_model": True, "resume_from_checkpoint": job.get("resume_from_checkpoint")}
        ),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_only_model')}: false`.",
            (job.set("save_only_model", False),),
            breaks="Checkpoints take the optimizer's states more: two or three times the weights.",
        ),
        also=(job.place("resume_from_checkpoint"),),
    )


def _on_the_way(job: Job) -> Iterator[Said]:
    """Checkpoints are written again and again, and a run that stops cannot go on from any."""
    kept = job.get("save_strategy")
    again = kept == "epoch" or (kept == "steps" and (job.is_given("save_steps") or job.is_given("save_strategy")))
    if not again or job.get("load_best_model_at_end") is True or job.get("save_total_limit") is None:
        return
    yield Finding(
        f"`{job.called('save_only_model')}: true` with checkpoints on the way that are thrown away again: none"
        f" can be evaluated"
        " later, and none resumed from.",
        place=job.place("save_only_model"),
        evidence=Evidence(Level.RESOLVED, {"save_only_model": True, "save_strategy": kept}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_only_model')}: false`.",
            (job.set("save_only_model", False),),
            breaks="Checkpoints take the optimizer's states more: two or three times the weights.",
        ),
    )


RULE = Rule(
    code="CKP002",
    name="cannot-resume",
    summary="Checkpoints lack what resuming needs.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="A run goes on as if it had not stopped only with the optimizer's states, the schedule and the random numbers.",
        why="Without them the first steps after resuming have Adam's states at zero, and another order of the data.",
        detected="E1: `save_only_model` together with `resume_from_checkpoint`.",
        proven="Files of a checkpoint: `optimizer.pt`, `scheduler.pt`, `rng_state.pth`.",
        deliberate=("Only the weights are to be taken over.",),
        sources=("transformers' documentation of `save_only_model`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}save_only_model: true\n"}, says="begins anew"),
    good=Example({"sft.yaml": f"{_SFT}save_only_model: false\n"}),
)
