"""ENV005: variables that are for debugging slow every step."""

from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE, Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

ON = frozenset({"1", "true", "True", "TRUE", "yes", "on"})

SLOW = {
    "CUDA_LAUNCH_BLOCKING": "the host waits for every kernel",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor asks the driver for memory",
    "NCCL_P2P_DISABLE": "GPUs of one host talk through its memory",
    "NCCL_SHM_DISABLE": "processes of one host talk through sockets",
}

_RUN = "{}accelerate launch --num_processes 2 -m trl.scripts.sft --config sft.yaml\n"
_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nmax_length: 2048\n"


def check(project: Project, whole: Project) -> Iterator[Said]:
    seen: set[tuple[Place, str]] = set()
    for job in project.jobs:
        values = {name: (setting.value, setting.place) for name, setting in job.environment.items() if setting.is_known}
        yield from _of(values, seen)
    for launch in project.launches:
        values = {
            name: (setting.value, setting.place) for name, setting in launch.variables.items() if setting.is_known
        }
        yield from _of(values, seen)
    for script in project.scripts:
        yield from _anomalies(script)
    if project.environment is not None:
        yield from _of({name: (value, NOWHERE) for name, value in project.environment.variables.items()}, seen)


def _anomalies(script: Script) -> Iterator[Finding]:
    """Autograd's search for what is no number, switched on for good in a file that trains."""
    if not loops(script) and not any(call.name.endswith("Trainer.train") for call in script.calls):
        return
    for call in script.calls_of("set_detect_anomaly", "detect_anomaly"):
        given = call.arguments.get("0") or call.arguments.get("mode")
        on = given.value is True and not given.others if given is not None else call.name.endswith(".detect_anomaly")
        if not on or not call.name.startswith("torch.") or any(one.kind == "if" for one in call.around):
            continue
        yield Finding(
            f"`{call.name.removeprefix('torch.')}` looks for what is no number behind every backward operation, keeps where"
            " each forward one was called, and waits for the device each time.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"call": call.name}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(Risk.OPERATIONAL, "Take it out of runs that matter."),
        )
        return


def _of(values: Mapping[str, tuple[Any, Place]], seen: set[tuple[Place, str]]) -> Iterator[Finding]:
    for name, (value, place) in values.items():
        why = SLOW.get(name, "")
        if name == "TORCH_DISTRIBUTED_DEBUG" and str(value).upper() == "DETAIL":
            why = "every collective is checked by another one"
        elif str(value) not in ON:
            continue
        if not why or (place, name) in seen:
            continue
        seen.add((place, name))
        yield Finding(
            f"`{name}={value}`{'' if place.file else ' is set in this environment'}: {why}.",
            place=place,
            evidence=Evidence(Level.TEXT if place.file else Level.PROBED, {name: str(value)}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(Risk.OPERATIONAL, "Unset it for runs that matter."),
        )


RULE = Rule(
    code="ENV005",
    name="debugging-variables",
    summary="Variables for debugging are set, and slow every step.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what=f"{', '.join(f'`{name}`' for name, why in SLOW.items() if why)} `TORCH_DISTRIBUTED_DEBUG=DETAIL`,"
        " and `torch.autograd.set_detect_anomaly(True)` under no condition in a file that trains.",
        why="They were set once to find an error, and stay in launchers and profiles.",
        detected="E0: variables of launchers and scripts, and the call; E2: those of this environment.",
        proven="`dynotune profile -- ...`: the time between kernels.",
        deliberate=("An error is being looked for.", "Hardware without working links between GPUs."),
        sources=("PyTorch's, CUDA's and NCCL's documentation of their variables",),
    ),
    bad=Example({"run.sh": _RUN.format("export CUDA_LAUNCH_BLOCKING=1\n"), "sft.yaml": _SFT}, says="every kernel"),
    good=Example({"run.sh": _RUN.format(""), "sft.yaml": _SFT}),
)
