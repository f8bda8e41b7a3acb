"""A Python file starts another of the project with flags that stand in its text, and that one's parser has none of them."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.read.launchers.accepts import accepts
from dynotune.audit.schema import Schemas
from dynotune.audit.shapes.flags_by_another_name import meant_by

STARTS = re.compile(r"subprocess\.|os\.(exec\w*|system|spawn\w*)\(")
_LAUNCHERS = re.compile(r"torchrun|accelerate|deepspeed|torch\.distributed|srun|mpirun")
_FLAG = re.compile(r"(--[A-Za-z][\w-]*)(?:=.*)?", re.DOTALL)
_GROWS = frozenset({"append", "extend", "insert"})

OF_LAUNCHERS = frozenset({"local_rank", "local-rank", "deepspeed", "deepspeed_config"})
"""What launchers add to a script's arguments."""

_TO_LAUNCHERS = re.compile(
    r"(?:nproc|nnodes|n_?tasks|num_(?:processes|machines|nodes|gpus)|main_process|machine_rank|node_rank|master_|rdzv|standalone"
    r"|multi_gpu|config_file|use_fsdp|use_deepspeed|fsdp_|zero|dynamo|mixed_precision|module$|max_restarts|log_dir|tee$"
    r"|include|exclude|hostfile|launcher|gpus|cpus|mem$|time$|partition|job_name|no_python|same_network|offload_)"
)
"""Flags of launchers themselves, which a file that starts by one may keep in a list of their own."""


def flags_that_a_started_program_lacks(launcher: Script, project: Project) -> Iterator[Said]:
    scripts = {script.file: script for script in project.scripts if script.file != launcher.file}
    by_name: dict[str, set[str]] = {}
    for file in scripts:
        by_name.setdefault(file.rpartition("/")[2], set()).add(file)
    flags: list[tuple[ast.expr, str]] = []
    targets: set[str] = set()
    for node in ast.walk(launcher.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            targets |= by_name.get(node.value.rpartition("/")[2], set())
        handed, named = _handed(node, by_name)
        targets |= named
        found = ((one, _FLAG.fullmatch(text)) for one in handed if (text := _begins(one)).startswith("--"))
        flags += [(one, flag[1]) for one, flag in found if flag is not None]
    for written, text in _written_out(launcher, scripts):
        targets |= {file for file in scripts if file.rpartition("/")[2] in text.split(" ")[0]}
        flags += [(written, flag) for flag in re.findall(r"(?<=\s)--[A-Za-z][\w-]*", text)]
    every = {script.file: script for script in project.scripts}
    taken = accepts(scripts[targets.pop()], every, Schemas.of()) if len(targets) == 1 else None
    if taken is None or not taken.closed:
        return
    launched = _LAUNCHERS.search(launcher.source)
    for node, flag in flags:
        name = flag.lstrip("-")
        if taken.takes(name) or name in OF_LAUNCHERS or (launched and _TO_LAUNCHERS.match(name.replace("-", "_"))):
            continue
        close = meant_by(name, taken.flags)
        yield Finding(
            f"The program that is started has no flag `{flag}`: its parser stops with an error."
            f"{f' Did you mean `--{close}`?' if close else ''}",
            place=place_of(launcher, node),
            evidence=Evidence(Level.TEXT, {"flag": flag, "parser": taken.parser, "flags": len(taken.flags)}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.BEHAVIOURAL, f"Call it `--{close}`." if close else "Take it out, or add it to the parser."
            ),
        )


def _begins(node: ast.AST | None) -> str:
    """A text, or what one that is put together begins with: `--lr=` of `f"--lr={lr}"`."""
    if isinstance(node, ast.JoinedStr):
        first = _begins(node.values[0]) if node.values else ""
        return first if "=" in first else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _handed(node: ast.AST, by_name: Mapping[str, set[str]]) -> tuple[Sequence[ast.expr], set[str]]:
    """What may be the program's part of a command: a list of flags, the values of a dictionary, what a list is given; of a
    list that begins another program, what stands behind the program's own name. And the files of modules behind `-m`."""
    if isinstance(node, ast.Dict):
        return node.values, set()
    if isinstance(node, ast.Call):
        return (node.args if isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS else ()), set()
    if not isinstance(node, ast.List | ast.Tuple) or not node.elts:
        return (), set()
    texts = [_begins(one) for one in node.elts]
    for number, text in enumerate(texts):
        files = _modules(text, by_name) if number and texts[number - 1] == "-m" else set()
        if files or text.rpartition("/")[2] in by_name:
            return node.elts[number + 1 :], files
    own = not texts[0] or texts[0].startswith(("--", "python"))
    return (node.elts if own and not _LAUNCHERS.search(ast.unparse(node)) else ()), set()


def _modules(name: str, by_name: Mapping[str, set[str]]) -> set[str]:
    """The files of `package.module`."""
    path = name.replace(".", "/")
    ends = (f"/{path}.py", f"/{path}/__main__.py") if re.fullmatch(r"[\w.]+", name) else ()
    return {file for end in ends for file in by_name.get(end.rpartition("/")[2], ()) if f"/{file}".endswith(end)}


def _written_out(launcher: Script, scripts: Mapping[str, Script]) -> Iterator[tuple[ast.expr, str]]:
    """Commands in one text (`os.system(f"python train.py --lr {lr}")`), from the name of the program on."""
    names = "|".join(re.escape(file.rpartition("/")[2]) for file in scripts)
    found = re.compile(rf"(?:^|[\s/])((?:{names})\s.*)", re.DOTALL) if names else None
    for node in ast.walk(launcher.tree) if found is not None else ():
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if found is not None and (said := found.search(text)) is not None and _COMMAND.match(text):
            yield node, re.split(r"[|;&>]", said[1])[0]


_COMMAND = re.compile(r"\s*(?:[A-Z_]+=\S+\s+)*(?:python\d?|torchrun|accelerate|deepspeed|srun|uv run|nohup|sbatch)\s")
