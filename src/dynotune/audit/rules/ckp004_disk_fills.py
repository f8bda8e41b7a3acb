"""CKP004: more checkpoints than a disk is likely to hold."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

GB = 500
"""From here on it is said where the disk is not known."""

_SFT = (
    "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nuse_peft: false\nmax_steps: 5000\nsave_steps: 250\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.DYNOTUNE or job.get("save_strategy", "steps") != "steps" or adapters(job) is not False:
        return
    limit = job.setting("save_total_limit")
    if limit is not None and not (limit.is_known and limit.value is None):
        return
    steps, every = number(job, "max_steps"), number(job, "save_steps")
    model = known(job.get("model_name_or_path"))
    if not steps or steps < 0 or not every or model is None or not model.billions:
        return
    count = int(steps // every) if every >= 1 else round(1 / every)
    bytes_each = 2 if job.get("dtype") in ("bfloat16", "float16") else 4
    each = model.billions * bytes_each * (1 if job.get("save_only_model") is True else 3)
    total = each * count
    disk = (project.environment.machine.get("disk") or {}).get("current_folder") if project.environment else None
    if count < 3 or total < (disk / 1e9 if disk else GB):
        return
    free = f", and {disk / 1e9:,.0f} GB are free here" if disk else ""
    yield Finding(
        f"{count} checkpoints of about {each:,.0f} GB each are kept, {total:,.0f} GB in all{free}.",
        place=job.place("save_steps"),
        evidence=Evidence(
            Level.RESOLVED, {"checkpoints": count, "GB each": round(each), "GB": round(total), "free": disk}
        ),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_total_limit')}: 2`.",
            (job.set("save_total_limit", 2),),
            breaks="Earlier checkpoints are removed as later ones come.",
        ),
    )


RULE = Rule(
    code="CKP004",
    name="disk-fills",
    summary="Checkpoints pile up without a limit.",
    group=Group.OPERATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Without `save_total_limit` every checkpoint is kept: weights and, unless left out, twice as much of Adam's.",
        why="A full disk ends the run while it writes a checkpoint.",
        detected=f"E1: updates, `save_steps` and the model's size; said above {GB} GB, or what is free on this machine.",
        proven="`du` on the output folder.",
        deliberate=("All checkpoints are wanted, and the disk is large.",),
        sources=("Arithmetic: parameters x bytes x 3",),
    ),
    bad=Example({"sft.yaml": _SFT}, says="20 checkpoints"),
    good=Example({"sft.yaml": f"{_SFT}save_total_limit: 2\n"}),
)
