"""CFG019: settings of GRPO's generation that exclude each other."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is not Trainer.TRL or number(job, "num_generations") is None:
        return
    yield from _groups(job)
    yield from _server(job, project)


def _groups(job: Job) -> Iterator[Said]:
    rows, every = number(job, "per_device_train_batch_size"), number(job, "gradient_accumulation_steps")
    group, processes = number(job, "num_generations"), number(job, "num_processes")
    given = job.is_given("generation_batch_size") or job.is_given("steps_per_generation")
    if not rows or not every or not group or group < 2 or not processes or given or not job.is_given("num_generations"):
        return
    batch = int(rows * every * processes)
    if batch % int(group) == 0:
        return
    yield Finding(
        f"{int(rows)} rows x {int(every)} accumulated x {int(processes)} processes are {batch} completions, which groups of"
        f" `num_generations: {int(group)}` do not divide: TRL stops.",
        place=job.place("num_generations"),
        evidence=Evidence(Level.RESOLVED, {"completions": batch, "num_generations": int(group)}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take a divisor of {batch} for `num_generations`, or change the batch.",
            accuracy="Groups of another size give other advantages.",
        ),
        also=(job.place("per_device_train_batch_size"), job.place("num_processes")),
    )


def _server(job: Job, project: Project) -> Iterator[Said]:
    """A server is started for it, and it generates by itself."""
    starts = [one for one in project.launches if "vllm-serve" in one.words or "vllm-serve" in one.program]
    named = any(job.is_given(name) for name in ("vllm_server_host", "vllm_server_base_url", "vllm_server_port"))
    if job.get("use_vllm") is not True or job.get("vllm_mode") != "colocate" or not (starts or named):
        return
    yield Finding(
        "`use_vllm` generates in the training processes (`vllm_mode: colocate`, the default since TRL 1.0): the"
        " server that is"
        " started or named for it is never asked.",
        place=job.place("use_vllm"),
        evidence=Evidence(Level.RESOLVED, {"vllm_mode": "colocate", "servers": len(starts)}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(Risk.OPERATIONAL, 'Set `vllm_mode: "server"`, or start no server and train on its GPUs too.'),
        also=tuple(one.place for one in starts[:1]),
    )


_SCRIPT = """from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=4, num_generations={})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=args, reward_funcs=[score], train_dataset=rows).train()
"""
_RUN = "accelerate launch --num_processes 2 train.py\n"
RULE = Rule(
    code="CFG019",
    name="generation-that-cannot-be",
    summary="Settings of GRPO's generation exclude each other.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="The completions of a step are made in groups of `num_generations`, and by vLLM within the"
        " training processes or in"
        " a server of its own.",
        why="A batch that the groups do not divide is refused at the start. A server that nobody asks keeps its GPUs idle.",
        detected="E1: rows, accumulation and processes against the group; `vllm_mode` against servers that commands start.",
        proven="The run's first seconds; `nvidia-smi` on the server's GPUs.",
        deliberate=("The server is for evaluation.",),
        sources=("TRL 1.16: `GRPOConfig.__post_init__`, `vllm_mode`",),
    ),
    bad=Example({"train.py": _SCRIPT.format(10), "run.sh": _RUN}, says="do not divide"),
    good=Example({"train.py": _SCRIPT.format(8), "run.sh": _RUN}),
)
