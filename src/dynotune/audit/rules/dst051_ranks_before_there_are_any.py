"""DST051: the number of ranks is asked for before there are any."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Said
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.asked_at_import import asked_at_import
from dynotune.audit.shapes.asked_before_the_group import asked_on_the_way, asked_too_early
from dynotune.audit.shapes.rank_variable_of_no_launcher import rank_variable_of_no_launcher
from dynotune.audit.shapes.ranks_in_shell import makes_ranks, ranks_in_shell
from dynotune.audit.shapes.ranks_set_afterwards import ranks_set_afterwards
from dynotune.audit.shapes.read_before_the_launcher import read_before_the_launcher
from dynotune.audit.shapes.read_by_the_parent import read_by_the_parent
from dynotune.audit.shapes.tasks_for_ranks import tasks_for_ranks


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from tasks_for_ranks(script, project)
        early = list(asked_too_early(script))
        yield from early or asked_on_the_way(script, project)
        yield from read_by_the_parent(script, project)
        yield from read_before_the_launcher(script, project)
        yield from asked_at_import(script, project)
        yield from ranks_set_afterwards(script, project)
        yield from rank_variable_of_no_launcher(script, project)
    for file in sorted({launch.file for launch in project.launches if makes_ranks(launch)}):
        yield from ranks_in_shell(file, project)


_TWO = """import torch.distributed as dist


def main():
%s    train(rank)
"""
_ASK, _INIT = "    rank = dist.get_rank()\n", '    dist.init_process_group("nccl")\n'
_PARENT = """import os
import subprocess

world = int(%s)
accumulation = 128 // (4 * world)
subprocess.run(["accelerate", "launch", "--num_processes", "8", "train.py", "--accum", str(accumulation)], check=True)
"""
_PLAN = """import json
import os

world = int(os.environ.get("WORLD_SIZE", 1))
json.dump({"accum": 64 // world}, open("args.json", "w"))
"""
_TRAINS = """from transformers import Trainer, TrainingArguments

Trainer(model=model, args=TrainingArguments(output_dir="out", seed=1), train_dataset=rows).train()
"""
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
        " it imports; or it is read with a default by the process that starts the launcher, or by a program that a job file"
        " runs before it; or one of the ranks' variables is read with a default above the call of a function that sets it,"
        " or when a file is loaded, and no launcher of the project sets it; or without a default when a file is loaded by a"
        " program that a document or a script starts by `python` alone, or whenever such a program runs.",
        proven="Print the number where it is used, on every rank.",
        deliberate=("Another module, imported above, makes the group.",),
        sources=("PyTorch's documentation of `torch.distributed`", "torchrun's documentation, environment variables"),
    ),
    bad=Example({"train.py": _TWO % (_ASK + _INIT)}, says="before"),
    good=Example({"train.py": _TWO % (_INIT + _ASK)}),
    also_bad=(
        Example({"launch.py": _PARENT % 'os.environ.get("WORLD_SIZE", 1)'}, says="before the launcher"),
        Example({"launch.py": _PARENT % 'os.getenv("WORLD_SIZE", "1")'}, says="before the launcher"),
        Example(
            {"plan.py": _PLAN, "run.sh": "python plan.py\ntorchrun --nproc_per_node 8 train.py\n", "train.py": _TRAINS},
            says="before the launcher (run.sh:2)",
        ),
    ),
)
