"""DST051: the number of ranks is asked for before there are any."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_ASKS = frozenset({"torch.distributed.get_world_size", "torch.distributed.get_rank", "torch.distributed.barrier"})
_STARTS = re.compile(
    r"(^|\.)(init_process_group|init_distributed|Accelerator|PartialState|TrainingArguments|Seq2SeqTrainingArguments|SFTConfig"
    r"|DPOConfig|init_device_mesh|HfArgumentParser|TrlParser|Fabric)$"
)
_SPAWNS = frozenset(
    {"torch.multiprocessing.spawn", "accelerate.notebook_launcher", "torch.multiprocessing.start_processes"}
)


_IN_SHELL = re.compile(r"\$\(\([^\n]{0,200}?\$?\{?\b(WORLD_SIZE|LOCAL_WORLD_SIZE)\b")


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _asked_too_early(script)
        yield from _read_by_the_parent(script, project)
        yield from _asked_at_import(script)
    for file in sorted({launch.file for launch in project.launches if launch.launcher}):
        yield from _in_shell(file, project)


def _in_shell(file: str, project: Project) -> Iterator[Said]:
    """Arithmetic with the number of ranks, in the file whose command is yet to make them."""
    text = project.texts.get(file, "")
    first = min(launch.place.line for launch in project.launches if launch.file == file and launch.launcher)
    if re.search(r"(^|\s)(export\s+)?(LOCAL_)?WORLD_SIZE=", text) or re.search(
        r"^\s*srun\b|mpirun", text, re.MULTILINE
    ):
        return
    for number, line in enumerate(text.split("\n")[: max(first - 1, 0)], 1):
        found = _IN_SHELL.search(line.partition(" #")[0])
        if found is None or line.lstrip().startswith("#"):
            continue
        yield Finding(
            f"`{found[1]}` is read before the launcher on line {first} starts the processes that it counts: it is"
            f" not set, or"
            " its default is taken, whatever the number of GPUs.",
            place=Place(file, number),
            evidence=Evidence(Level.TEXT, {"read": number, "launched": first}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Take the number that the launcher is given (`--nproc_per_node`, times the nodes).",
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
            also=(Place(file, first),),
        )
        return


def _asked_too_early(script: Script) -> Iterator[Said]:
    starts = [call for call in script.calls if _STARTS.search(call.name)]
    guarded = re.search(r"is_initialized\(|is_available\(\s*\) and dist", script.source)
    for call in script.calls:
        if call.name not in _ASKS or guarded:
            continue
        # What stands outside of functions runs first, whatever its line.
        later = [
            start
            for start in starts
            if (_function(start) == _function(call) and start.place.line > call.place.line)
            or (not _function(call) and _function(start))
        ]
        earlier = [start for start in starts if start.place.line < call.place.line]
        if not later or earlier or any("init" in one.name.lower() for one in _before(script, call)):
            continue
        yield Finding(
            f"`{call.name.rpartition('.')[2]}()` is called before `{later[0].name.rpartition('.')[2]}` (line"
            f" {later[0].place.line}) has made the group: it raises.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"asked": call.place.line, "made": later[0].place.line}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.SAFE, "Make the group first."),
            also=(later[0].place,),
        )
        return


def _before(script: Script, call: Call) -> list[Call]:
    """Calls of the same function above it, which may make the group."""
    return [one for one in script.calls if _function(one) == _function(call) and one.place.line < call.place.line]


def _read_by_the_parent(script: Script, project: Project) -> Iterator[Said]:
    """At the top of the file that starts its workers itself, or of one that it imports."""
    spawns = [call for call in script.calls if call.name in _SPAWNS]
    if not spawns:
        return
    for one in (script, *imported(script, project)):
        for call in one.calls:
            name = call.arguments.get("0") if call.name in ("os.environ.get", "os.getenv") else None
            if name is None or name.value != "WORLD_SIZE" or "1" not in call.arguments:
                continue
            if any(around.kind in ("function", "main") for around in call.around):
                continue  # it may run in the workers
            where = "this file" if one is script else f"`{script.file}`, which imports it,"
            yield Finding(
                f"`WORLD_SIZE` is read when the file is loaded, and {where} starts its workers itself"
                f" (`{spawns[0].name.rpartition('.')[2]}`): there is no such variable yet, and the default is taken.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"default": call.arguments["1"].value}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Take the number that is given to the call that starts the workers, or ask `dist.get_world_size()`"
                    " in them.",
                    accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
                ),
                also=(spawns[0].place,),
            )
            return


def _asked_at_import(script: Script) -> Iterator[Said]:
    """`get_world_size() if is_initialized() else 1` at the top of a file, where there can be no group yet."""
    if any(
        call.name.endswith(("init_process_group", "init_distributed")) and not _function(call) for call in script.calls
    ):
        return
    for node in script.tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if not isinstance(value, ast.IfExp) or "is_initialized()" not in ast.unparse(value.test):
            continue
        if not re.search(r"get_(world_size|rank)\(\)", ast.unparse(value.body)):
            continue
        starts = [call for call in script.calls if _STARTS.search(call.name)]
        if any(start.place.line < node.lineno and not _function(start) for start in starts):
            continue
        yield Finding(
            f"`{ast.unparse(value.body)}` is asked for when the file is loaded, before anything has made the"
            f" group: it is always"
            f" `{ast.unparse(value.orelse)}`.",
            place=place_of(script, node),
            evidence=Evidence(Level.TEXT, {"default": ast.unparse(value.orelse)}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                'Read `int(os.environ.get("WORLD_SIZE", 1))`, which the launcher sets, or ask once the group is there.',
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
        )
        return


def _function(call: Call) -> str:
    return ".".join(around.name for around in call.around if around.kind in ("function", "class"))


_TWO = """import torch.distributed as dist


def main():
%s    train(rank)
"""
_ASK, _INIT = "    rank = dist.get_rank()\n", '    dist.init_process_group("nccl")\n'
RULE = Rule(
    code="DST051",
    name="ranks-before-there-are-any",
    summary="The number of ranks, or the own one, is asked for before the group of processes exists.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`get_world_size()` needs a group. `WORLD_SIZE` is set by a launcher for its workers; a file that"
        " starts workers"
        " itself has none when it is loaded, and a default of 1 goes into whatever is computed from it.",
        why="At best it stops. At worst accumulation, learning rate or shares of rows are those of one GPU.",
        detected="E0: the question stands above the call that makes the group, in the same function, and nothing"
        " asks whether"
        " there is one; or `WORLD_SIZE` is read with a default at the top of a file that spawns its workers, or of one that"
        " it imports.",
        proven="Print the number where it is used, on every rank.",
        deliberate=("Another module, imported above, makes the group.",),
        sources=("PyTorch's documentation of `torch.distributed`", "torchrun's documentation, environment variables"),
    ),
    bad=Example({"train.py": _TWO % (_ASK + _INIT)}, says="before"),
    good=Example({"train.py": _TWO % (_INIT + _ASK)}),
)
