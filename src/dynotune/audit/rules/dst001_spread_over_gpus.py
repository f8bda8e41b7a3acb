"""DST001: `device_map` spreads one model over GPUs in a job of several processes."""

from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.copies_claimed import copies_claimed
from dynotune.audit.shapes.spread_beside import SPREAD, spread_beside

_FIRST = ("cuda", "cuda:0", 0)

_LAUNCH = "accelerate launch --num_processes 4 -m trl.scripts.sft --config sft.yaml\n"
_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nmax_length: 2048\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    processes = number(job, "num_processes")
    yield from _on_one_gpu(job, processes)
    yield from spread_beside(job, project)
    yield from copies_claimed(job, project)
    if job.get("device_map") not in SPREAD or not job.is_given("device_map") or processes is None or processes < 2:
        return
    yield Finding(
        f"`{job.called('device_map')}: {job.get('device_map')}` spreads one model over all GPUs that a process"
        f" sees, and the"
        f" launcher starts {processes:g} processes: they are refused, or fill each other's memory.",
        place=job.place("device_map"),
        evidence=Evidence(Level.RESOLVED, {"device_map": job.get("device_map"), "processes": processes}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Take `{job.called('device_map')}` out: the launcher gives each process its GPU.",
            (job.remove("device_map"),),
        ),
        also=(job.place("num_processes"),),
    )


def _on_one_gpu(job: Job, processes: float | None) -> Iterator[Said]:
    """All processes load onto the same GPU, by its number."""
    held = job.get("device_map")
    one = held.get("") if isinstance(held, Mapping) and len(held) == 1 else held
    if one not in _FIRST or isinstance(one, bool) or held is None or processes is None or processes < 2:
        return
    if one == "cuda" and job.trainer is Trainer.TORCH:
        return  # the current device, which such a loop has set
    yield Finding(
        f"`{job.called('device_map')}: {held}` loads the model onto the first GPU in each of the {processes:g}"
        f" processes.",
        place=job.place("device_map"),
        evidence=Evidence(Level.RESOLVED, {"device_map": str(held), "processes": processes}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Take `{job.called('device_map')}` out, or name the process's own: `{{'': local_rank}}`.",
            (job.remove("device_map"),),
        ),
        also=(job.place("num_processes"),),
    )


RULE = Rule(
    code="DST001",
    name="spread-over-gpus",
    summary="`device_map` spreads a model in a job of several processes.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="`device_map: auto` is a way to load a model that is larger than a GPU: layers on one after the other."
        " With data"
        " parallel processes each is to have the whole model on its own GPU.",
        why="transformers refuses to train such a model in a distributed run; loops of one's own run out of memory.",
        detected="E1: `device_map` and the launcher's number of processes; also of a model beside the trained one,"
        " which a"
        " program of such a job loads.",
        proven="The run's first seconds.",
        deliberate=("Each process sees its own GPUs only, by `CUDA_VISIBLE_DEVICES`.",),
        sources=("accelerate's `prepare_model`; TRL issues 1303 and 2256",),
    ),
    bad=Example({"run.sh": _LAUNCH, "sft.yaml": f"{_SFT}device_map: auto\n"}, says="4 processes"),
    good=Example({"run.sh": _LAUNCH, "sft.yaml": _SFT}),
)
