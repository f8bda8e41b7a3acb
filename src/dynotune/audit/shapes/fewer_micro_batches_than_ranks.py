"""An accumulation that is divided by more processes than it has micro-batches, and comes to zero."""

import ast
from collections.abc import Iterator

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import is_ranks, last_part
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_COUNTS = ("nproc_per_node", "num_processes", "num_gpus")


def fewer_micro_batches_than_ranks(launch: Launch, project: Project) -> Iterator[Said]:
    """`accum // world_size`, of a value and processes that the command gives."""
    script = next((one for one in project.scripts if one.file == launch.script), None)
    processes = _processes(launch, project)
    if script is None or processes is None or processes < 2 or "//" not in script.source:
        return
    for node in ast.walk(script.tree):
        held: ast.expr | None = None
        if isinstance(node, ast.keyword) and node.arg in ("gradient_accumulation_steps", "accumulate_grad_batches"):
            held = node.value
        if isinstance(node, ast.Assign) and any("accum" in last_part(one).lower() for one in node.targets):
            held = node.value
        if not isinstance(held, ast.BinOp) or not isinstance(held.op, ast.FloorDiv) or not is_ranks(held.right):
            continue
        name = last_part(held.left)
        value = _value(name, launch, script) if name else None
        if value is None or not 0 < value < processes:
            continue
        yield Finding(
            f"`{ast.unparse(held)}` is {value} // {processes}, which is 0: fewer micro-batches than processes, and no step"
            " can be made of none.",
            place=place_of(script, held),
            evidence=Evidence(Level.RESOLVED, {name: value, "processes": processes}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Give the accumulation of one process as it is, or `max(1, {ast.unparse(held)})` where a total is meant.",
                measure="Print the rows of a step: micro-batch x accumulation x processes.",
            ),
            also=(_given_at(name, launch), launch.place),
        )
        return


def _given_at(name: str, launch: Launch) -> Place:
    flag = launch.flags.get(name)
    return flag.place if flag is not None else launch.place


def _processes(launch: Launch, project: Project) -> int | None:
    nodes = launch.launcher_flags.get("nnodes") or launch.launcher_flags.get("num_machines")
    if nodes is not None and nodes.value not in (1, "1"):
        return None
    given = next((launch.launcher_flags[one] for one in _COUNTS if one in launch.launcher_flags), None)
    if given is not None:
        return int(given.value) if str(given.value).isdigit() else None
    counts = {
        number(job, "num_processes")
        for job in project.jobs
        if {launch.file, launch.script} <= set(job.files) and job.is_given("num_processes")
    }
    found = counts.pop() if len(counts) == 1 else None
    if found is None:
        named = [one for one in project.configs if one.file in launch.configs and one.kind == "accelerate"]
        value = named[0].values.get("num_processes") if len(named) == 1 else None
        found = value if type(value) is int else None
    return int(found) if found is not None else None


def _value(name: str, launch: Launch, script: Script) -> int | None:
    """By the command's flag, else by the default of the script's flag, constant or parameter."""
    flag = launch.flags.get(name) or launch.flags.get(name.replace("_", "-"))
    if flag is not None:
        return int(flag.value) if str(flag.value).isdigit() else None
    held = [
        script.constants[one] for one in (f"--{name}", f"--{name.replace('_', '-')}", name) if one in script.constants
    ]
    if held:
        return held[0].value if type(held[0].value) is int else None
    defaults: set[int] = set()
    for node in ast.walk(script.tree):
        if isinstance(node, ast.FunctionDef):
            given = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            for one, default in zip(given, node.args.defaults, strict=True):
                if one.arg == name and isinstance(default, ast.Constant) and type(default.value) is int:
                    defaults.add(default.value)
    return defaults.pop() if len(defaults) == 1 else None
