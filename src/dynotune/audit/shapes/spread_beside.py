"""A model beside the trained one (a teacher, a reference, a judge) is spread over all GPUs by each of several processes."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call
from dynotune.audit.facts.together import reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")


def spread_beside(job: Job, project: Project) -> Iterator[Said]:
    processes = number(job, "num_processes")
    start = next((one for one in project.scripts if one.file in job.files), None)
    if processes is None or processes < 2 or start is None or "num_processes" not in job.settings:
        return
    if "CUDA_VISIBLE_DEVICES" in start.source or job.get("device_map") in SPREAD:
        return  # the job's own, which is said; or each process sees what it is shown
    for script in reached(start, project):
        for call in script.calls_of("from_pretrained"):
            held = call.arguments.get("device_map")
            if held is None or held.value not in SPREAD or held.others or not _is_model(call):
                continue
            named = f"`{call.result}`" if call.result else "a model beside the trained one"
            yield Finding(
                f"`device_map: {held.value}` spreads {named} over all GPUs that a process sees, and the launcher starts"
                f" {processes:g} processes: each lays its own copy over the same GPUs, one layer after the other, and they"
                " wait for each other or run out of memory.",
                place=held.place if held.place.line else call.place,
                also=(call.place, job.place("num_processes")),
                evidence=Evidence(Level.RESOLVED, {"device_map": held.value, "processes": processes}),
                stake=Stake(AtStake.TIME),
                remedy=Remedy(
                    Risk.SAFE,
                    'Give `device_map={"": local_rank}` (of accelerate: `{"": accelerator.local_process_index}`), or move it'
                    " with `.to(device)`: one copy on each process's own GPU.",
                    breaks="A model that one GPU does not hold: shard it, or serve it apart.",
                    measure="nvidia-smi, while it runs: every GPU lists as many processes as there are.",
                ),
            )
            return


def _is_model(call: Call) -> bool:
    owner = call.name.rpartition(".")[0]
    return "Model" in owner.rpartition(".")[2] or "ForCausalLM" in owner
