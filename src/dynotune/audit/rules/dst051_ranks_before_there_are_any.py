"""DST051: the number of ranks is asked for before there are any."""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rank_variables import read_with_default, setters
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, place_of
from dynotune.audit.facts.together import code, connected, imported, reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.slurm import directives
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.rank_variable_of_no_launcher import rank_variable_of_no_launcher

_ASKS = frozenset({"torch.distributed.get_world_size", "torch.distributed.get_rank", "torch.distributed.barrier"})
_STARTS = re.compile(
    r"(^|\.)(init_process_group|init_distributed|Accelerator|PartialState|TrainingArguments|Seq2SeqTrainingArguments|SFTConfig"
    r"|DPOConfig|init_device_mesh|HfArgumentParser|TrlParser|Fabric)$"
)
_SPAWNS = frozenset(
    {"torch.multiprocessing.spawn", "accelerate.notebook_launcher", "torch.multiprocessing.start_processes"}
)


_IN_SHELL = re.compile(
    r"(?:\$\(\([^\n]{0,200}?\$?\{?|\bexpr\s[^\n)`]{0,100}\$\{?|\blet\s[^\n;]{0,100}[/*]\s?\$?\{?"
    r"|\$\(echo\s[^\n]{0,100}?\$\{?(?=\w+\}?[^\n]{0,60}\|\s?bc)|\$\(python3? -c [^\n]{0,200}?environ(?:\.get\()?\[?[\"'])"
    r"\b(WORLD_SIZE|LOCAL_WORLD_SIZE)\b"
)
"""Arithmetic of the shell's own, by `expr`, `let` or `bc`, or by a line of Python."""

_START_THEM = ("axolotl ", "llamafactory-cli")
"""Programs that start the processes themselves."""


def _makes_ranks(launch: Launch) -> bool:
    return bool(launch.launcher) or launch.program.startswith(_START_THEM)


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _tasks_for_ranks(script, project)
        early = list(_asked_too_early(script))
        yield from early or _asked_on_the_way(script, project)
        yield from _read_by_the_parent(script, project)
        yield from _read_before_the_launcher(script, project)
        yield from _asked_at_import(script, project)
        yield from _set_afterwards(script, project)
        yield from rank_variable_of_no_launcher(script, project)
    for file in sorted({launch.file for launch in project.launches if _makes_ranks(launch)}):
        yield from _in_shell(file, project)


def _in_shell(file: str, project: Project) -> Iterator[Said]:
    """Arithmetic with the number of ranks, in the file whose command is yet to make them."""
    text = project.texts.get(file, "")
    first = min(launch.place.line for launch in project.launches if launch.file == file and _makes_ranks(launch))
    if re.search(r"(^|\s)(export\s+)?(LOCAL_)?WORLD_SIZE=", text):
        return
    if "#SBATCH" not in text and re.search(r"^\s*srun\b|mpirun", text, re.MULTILINE):
        return  # it may be one that a launcher runs; the job file itself is not
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


_TASKS = re.compile(r"[\"'](SLURM_NTASKS|SLURM_NPROCS|SLURM_STEP_NUM_TASKS)[\"']")


def _tasks_for_ranks(script: Script, project: Project) -> Iterator[Said]:
    """Slurm's number of tasks, where each task is a launcher that starts several processes."""
    if "SLURM_" not in script.source:
        return
    files = {one.file for one in connected(script, project)}
    for launch in project.launches:
        each = launch.launcher_flags.get("nproc_per_node") or launch.launcher_flags.get("num_processes")
        if launch.script not in files or each is None or each.value == 1:
            continue
        asked = directives(project.texts.get(launch.file, ""))
        tasks = {name: asked[name] for name in ("--ntasks", "-n", "--ntasks-per-node") if name in asked}
        if not asked or any(value != "1" for value, _ in tasks.values()):
            continue
        for number, line in enumerate(code(script).split("\n"), 1):
            if found := _TASKS.search(line):
                place = next(iter(tasks.values()))[1] if tasks else launch.place.line
                yield Finding(
                    f"`{found[1]}` counts what Slurm starts, one task a node here, and in each of them"
                    f" `{launch.launcher}` starts the processes: it is not their number.",
                    place=Place(script.file, number, 1, number, len(line) + 1),
                    evidence=Evidence(Level.RESOLVED, {"variable": found[1], "processes of a task": str(each.value)}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Read `WORLD_SIZE`, which the launcher sets in each process.",
                        accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
                    ),
                    also=(Place(launch.file, place),),
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


def _asked_on_the_way(script: Script, project: Project) -> Iterator[Said]:
    """In what a program does, in its order, through its functions and files: a question that stands before the call that
    makes the group."""
    if "__main__" not in script.source and not any(launch.script == script.file for launch in project.launches):
        return
    if not any(ask.rpartition(".")[2] in one.source for ask in _ASKS for one in connected(script, project)):
        return
    happens = list(itertools.islice(_happens(script, script.tree.body, project, 0), 400))
    kinds = [kind for kind, *_ in happens]
    if "ask" not in kinds or "start" not in kinds or kinds.index("ask") > kinds.index("start"):
        return
    _, of, asked = happens[kinds.index("ask")]
    _, beside, made = happens[kinds.index("start")]
    yield Finding(
        f"`{ast.unparse(asked.func)}()` is called before `{ast.unparse(made.func)}` (`{beside.file}`, line {made.lineno})"
        " has made the group: it raises.",
        place=place_of(of, asked),
        evidence=Evidence(Level.TEXT, {"asked": f"{of.file}:{asked.lineno}", "made": f"{beside.file}:{made.lineno}"}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.SAFE, "Make the group first."),
        also=(place_of(beside, made),),
    )


_GUARDS = re.compile(r"is_initialized|is_available|environ|distributed|ddp|world", re.IGNORECASE)
_PERHAPS = re.compile(r"init|setup|start|dist|launch|spawn", re.IGNORECASE)
"""What a function that was not read is called if it may make the group."""


def _happens(
    script: Script, body: Sequence[ast.AST], project: Project, depth: int
) -> Iterator[tuple[str, Script, ast.Call]]:
    """Questions (`ask`) and calls that make, or may make, the group (`start`), as they are reached. What stands under a
    condition about processes is left out."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.If | ast.IfExp | ast.Try) and _GUARDS.search(
            ast.unparse(node.test) if not isinstance(node, ast.Try) else "ddp"
        ):
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
                return  # `if not dist.is_initialized(): return 1`, and the rest only where there is a group
            continue
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            inner = [*node.args, *(keyword.value for keyword in node.keywords)]
        yield from _happens(script, inner, project, depth)
        if not isinstance(node, ast.Call):
            continue
        name = next((call.name for call in script.calls if _is_at(call, node)), "")
        last = name.rpartition(".")[2]
        if name in _ASKS:
            yield "ask", script, node
        elif _STARTS.search(name):
            yield "start", script, node
        else:
            defined = _definition(last, script, project) if depth < 4 else None
            if defined is not None:
                yield from _happens(defined[0], defined[1].body, project, depth + 1)
            elif _PERHAPS.search(last):
                yield "start", script, node


def _is_at(call: Call, node: ast.Call) -> bool:
    return (call.place.line, call.place.end_line) == (node.lineno, node.end_lineno) and (
        call.place.column,
        call.place.end_column,
    ) == (node.col_offset + 1, (node.end_col_offset or 0) + 1)


def _definition(name: str, script: Script, project: Project) -> tuple[Script, ast.FunctionDef] | None:
    """The only function of that name in the file or in those that it imports; of a class, what makes its objects."""
    for one in (script, *imported(script, project)):
        found = [
            node for node in one.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if len(found) == 1 and isinstance(found[0], ast.ClassDef):
            found = [node for node in found[0].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        if len(found) == 1 and isinstance(found[0], ast.FunctionDef):
            return one, found[0]
    return None


def _before(script: Script, call: Call) -> list[Call]:
    """Calls of the same function above it, which may make the group."""
    return [one for one in script.calls if _function(one) == _function(call) and one.place.line < call.place.line]


def _read_by_the_parent(script: Script, project: Project) -> Iterator[Said]:
    """At the top of the file that starts its workers itself, or of one that it imports."""
    spawns = [call for call in script.calls if call.name in _SPAWNS]
    if not spawns:
        return
    for one in reached(script, project):
        for call in one.calls:
            name = call.arguments.get("0") if call.name in ("os.environ.get", "os.getenv") else None
            if name is None or name.value != "WORLD_SIZE" or "1" not in call.arguments:
                continue
            if any(around.kind in ("function", "main") for around in call.around):
                continue  # it may run in the workers
            where = "this file" if one is script else f"`{script.file}`, which loads it,"
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


_STARTED_BY = re.compile(
    r"""["'](?:torchrun|deepspeed)["']|accelerate["',\s]+launch\b|torch\.distributed\.(?:run|launch)\b|torchrun """
)
_STARTS_A_COMMAND = re.compile(r"subprocess\.\w+|os\.system|os\.exec\w+|\bPopen\(|\bcheck_call\(|\brun\(")
_COUNTED = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE"})


def _read_before_the_launcher(script: Script, project: Project) -> Iterator[Said]:
    """In the process that starts the launcher, or in a program that a job file runs before it."""
    if "WORLD_SIZE" not in script.source or any(
        launch.script == script.file and launch.launcher for launch in project.launches
    ):
        return
    source = code(script)
    if re.search(
        r"environ\[['\"]WORLD_SIZE['\"]\]\s*=[^=]|setdefault\(['\"]WORLD_SIZE|['\"]WORLD_SIZE['\"]\s*:", source
    ):
        return  # it says itself how many
    started = list(_STARTED_BY.finditer(source)) if _STARTS_A_COMMAND.search(source) else []
    after = (
        Place(script.file, source[: started[-1].start()].count("\n") + 1)
        if started
        else _launched_after(script, project)
    )
    if after is None or any(loops(script)):
        return
    for call in script.calls:
        name = call.arguments.get("0") if call.name in ("os.environ.get", "os.getenv", "environ.get") else None
        if name is None or name.value not in _COUNTED:
            continue
        default = call.arguments.get("1") or call.arguments.get("default")
        taken = f"`{default.value}`" if default is not None else "nothing"
        yield Finding(
            f"`{name.value}` is read before the launcher ({after}) starts the processes that it counts: there is no such"
            f" variable here, and the default ({taken}) is taken whatever the number of GPUs.",
            place=call.place,
            evidence=Evidence(
                Level.TEXT, {"default": str(default.value) if default is not None else None, "launched": str(after)}
            ),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Take the number that the launcher is given, or compute it in the program that it starts.",
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
            also=(after,),
        )
        return


def _launched_after(script: Script, project: Project) -> Place | None:
    """The command with a launcher that a shell file has behind a plain `python` of this script."""
    name = re.escape(script.file)
    module = re.escape(script.file.removesuffix(".py").replace("/", "."))
    plain = re.compile(
        r"^(?!.*(?:torchrun|accelerate|deepspeed|srun|mpirun)).*\bpython[\d.]*\s+(?:-u\s+)?"
        rf"(?:(?:\S*/)?(?:\./)?{name}|-m\s+{module})(?=\s|$|\))"
    )
    for launch in project.launches:
        if not launch.launcher or launch.script == script.file:
            continue
        text = project.texts.get(launch.file, "")
        if re.search(r"(^|\s)(export\s+)?WORLD_SIZE=", text):
            continue
        above = text.split("\n")[: max(launch.place.line - 1, 0)]
        if any(plain.search(line.partition(" #")[0]) for line in above if not line.lstrip().startswith("#")):
            return Place(launch.file, launch.place.line)
    return None


_LAUNCHERS = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|\bdeepspeed\s+[-\w]")


def _set_afterwards(script: Script, project: Project) -> Iterator[Said]:
    """Read with a default, at import or above the call of what first sets it (from Slurm's or MPI's variables)."""
    early = [(call, name) for call in script.calls if (name := read_with_default(call))]
    if not early:
        return
    near = connected(script, project)
    made = [(one, sets) for one in near for sets in setters(one)]
    names = {sets.function for _, sets in made}
    if not made or any(_runs_at_import(one, names) for one in near) or _is_launched(near, project):
        return
    spawns = any(one.name in _SPAWNS for other in near for one in other.calls)
    for call, name in early:
        inside = _room(call)
        calls = [
            one.place.line for one in script.calls if one.name.rpartition(".")[2] in names and _room(one) == inside
        ]
        if inside.rpartition(".")[2] in names or (spawns and name == "WORLD_SIZE"):
            continue
        if (inside and not calls) or any(line < call.place.line for line in calls) or _is_loaded_late(script, near):
            continue
        of, sets = made[0]
        again = [one.place for one, other in early if other != name]
        yield Finding(
            f"`{name}` is read {'above the call of' if inside else 'when the file is loaded, before'} `{sets.function}()`,"
            f" which sets it{f' (`{of.file}`)' if of is not script else ''}: the default,"
            f" {call.arguments['1'].value!r}, is what every process takes.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"default": call.arguments["1"].value, "set in": sets.function}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Read it in a function that is called behind, or ask `dist.get_rank()` and `dist.get_world_size()`.",
                accuracy="Ranks take their own shares, and one of them writes.",
                measure="Print it on every rank.",
            ),
            also=(place_of(of, sets.node), *again[:2]),
        )
        return


def _room(call: Call) -> str:
    """The function that it runs in, `__main__` under that condition; empty: it runs when the file is loaded."""
    return _function(call) or ("__main__" if any(around.kind == "main" for around in call.around) else "")


def _is_loaded_late(script: Script, near: Sequence[Script]) -> bool:
    """All imports of the file stand in functions, and may come behind whatever sets the variables."""
    stem = script.file.rpartition("/")[2].removesuffix(".py")
    users = [
        one
        for one in near
        if one is not script and re.search(rf"\bimport\b[^\n]*\b{stem}\b|\b{stem}\s+import\b", one.source)
    ]
    return bool(users) and not any(
        re.search(rf"^(from|import)\b[^\n]*\b{stem}\b", one.source, re.MULTILINE) for one in users
    )


def _runs_at_import(script: Script, names: set[str]) -> bool:
    """One of these is called where a file is loaded, so that what is loaded behind it finds the variables."""
    return any(
        one.name.rpartition(".")[2] in names and not any(around.kind in ("function", "main") for around in one.around)
        for one in script.calls
    )


def _is_launched(near: Sequence[Script], project: Project) -> bool:
    """By what sets the variables for each process."""
    files = {one.file for one in near}
    launches = [launch for launch in project.launches if launch.script in files]
    if launches:
        return all(launch.launcher not in ("", "srun", "mpirun", "mpiexec") for launch in launches)
    texts = (*project.texts.values(), *project.documents.values())
    return any(_LAUNCHERS.search(text) for text in texts)


def _asked_at_import(script: Script, project: Project) -> Iterator[Said]:
    """`get_world_size() if is_initialized() else 1` at the top of a file, where there can be no group yet."""
    if any(
        call.name.endswith(("init_process_group", "init_distributed")) and not _function(call) for call in script.calls
    ):
        return
    if _is_loaded_late(script, connected(script, project)):
        return
    helpers = {
        node.name: node
        for node in script.tree.body
        if isinstance(node, ast.FunctionDef) and (found := _guarded(node)) and len(found) == 1
    }
    starts = [call for call in script.calls if _STARTS.search(call.name)]
    for node in script.tree.body:
        given = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if given is None:
            continue
        called = [
            helpers[one.func.id]
            for one in _evaluated(given)
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in helpers
        ]
        pairs = [one for held in (given, *called) for one in _guarded(held)]
        if not pairs or any(start.place.line < node.lineno and not _function(start) for start in starts):
            continue
        if _is_started_before(script, project, node.lineno):
            return
        asked, otherwise = pairs[0]
        yield Finding(
            f"`{asked}` is asked for when the file is loaded, before anything has made the group: it is always"
            f" `{otherwise}`.",
            place=place_of(script, node),
            evidence=Evidence(Level.TEXT, {"default": otherwise}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                'Read `int(os.environ.get("WORLD_SIZE", 1))`, which the launcher sets, or ask once the group is there.',
                accuracy="What is computed from it (accumulation, learning rate, shares of rows) changes.",
            ),
        )
        return


def _is_started_before(script: Script, project: Project, line: int) -> bool:
    """A file that it imports makes the group where that is loaded, or it calls a function that does where it is."""
    near = reached(script, project)
    starts = [(one, call) for one in near for call in one.calls if _STARTS.search(call.name)]
    if any(one is not script and not _room(call) for one, call in starts):
        return True
    makers = {_function(call) for _, call in starts} - {""}
    return any(
        call.name.rpartition(".")[2] in makers and not _room(call) and call.place.line < line for call in script.calls
    )


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """What of it runs where it stands: not what a `lambda` holds for later."""
    if isinstance(node, ast.Lambda):
        return
    yield node
    for one in ast.iter_child_nodes(node):
        yield from _evaluated(one)


def _guarded(node: ast.AST) -> list[tuple[str, str]]:
    """What is asked of the group where there is one, and what is taken where there is none: of an expression, or of a
    function that only gives it back."""
    pairs = [
        (one.body, one.orelse)
        for one in _evaluated(node)
        if isinstance(one, ast.IfExp) and "is_initialized()" in ast.unparse(one.test)
    ]
    body = node.body if isinstance(node, ast.FunctionDef) else []
    test, last = (body[-2], body[-1]) if len(body) > 1 else (None, None)
    if isinstance(test, ast.If) and isinstance(last, ast.Return) and "is_initialized()" in ast.unparse(test.test):
        inner = test.body[0].value if isinstance(test.body[0], ast.Return) else None
        pair = (last.value, inner) if "not " in ast.unparse(test.test) else (inner, last.value)
        if pair[0] is not None and pair[1] is not None and not test.orelse:
            pairs.append((pair[0], pair[1]))
    return [
        (ast.unparse(asked), ast.unparse(otherwise))
        for asked, otherwise in pairs
        if re.search(r"get_(world_size|rank)\(\)", ast.unparse(asked)) and isinstance(otherwise, ast.Constant)
    ]


def _function(call: Call) -> str:
    return ".".join(around.name for around in call.around if around.kind in ("function", "class"))


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
        " program that a document or a script starts by `python` alone.",
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
