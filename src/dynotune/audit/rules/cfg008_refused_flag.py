"""CFG008: a command passes a flag that the program's parser refuses."""

import ast
import difflib
import re
from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.read.launchers.accepts import accepts
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.schema import Schemas

_SCRIPT = (
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=1e-5)\n"
    "args = parser.parse_args()\nprint(args.lr)\n"
)
_OF_LAUNCHERS = frozenset({"local_rank", "local-rank", "deepspeed", "deepspeed_config"})
"""What launchers add to a script's arguments."""


_STARTS = re.compile(r"subprocess\.|os\.(exec\w*|system|spawn\w*)\(")
_LAUNCHERS = re.compile(r"torchrun|accelerate|deepspeed|torch\.distributed|srun|mpirun")


def check(project: Project, _: Project) -> Iterator[Said]:
    for launch in project.launches:
        yield from _of_a_command(launch, project)
    for script in project.scripts:
        if _STARTS.search(script.source):
            yield from _of_a_program(script, project)


def _of_a_program(launcher: Script, project: Project) -> Iterator[Said]:
    """A Python file that starts another of the project, with flags that stand in its text."""
    scripts = {script.file: script for script in project.scripts}
    flags: list[tuple[ast.Constant, str]] = []
    targets: set[str] = set()
    above = {child: node for node in ast.walk(launcher.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(launcher.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        last = node.value.rpartition("/")[2]
        targets |= {file for file in scripts if file != launcher.file and file.rpartition("/")[2] == last}
        holder = above.get(node)
        listed = isinstance(holder, ast.List | ast.Tuple) and not _LAUNCHERS.search(ast.unparse(holder))
        if re.fullmatch(r"--[A-Za-z][\w-]*", node.value) and (listed or isinstance(holder, ast.Dict)):
            flags.append((node, node.value))
    taken = accepts(scripts[targets.pop()], scripts, Schemas.of()) if len(targets) == 1 else None
    if taken is None or not taken.closed:
        return
    for node, flag in flags:
        name = flag.lstrip("-")
        if taken.takes(name) or name in _OF_LAUNCHERS:
            continue
        close = next(iter(difflib.get_close_matches(name.replace("-", "_"), sorted(taken.flags), 1, 0.8)), "")
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


def _of_a_command(launch: Launch, project: Project) -> Iterator[Said]:
    if launch.program.startswith("llamafactory-cli ") and launch.configs:
        yield from _dashed(launch)
    scripts = {script.file: script for script in project.scripts}
    script = scripts.get(launch.script)
    if script is None:
        return
    taken = accepts(script, scripts, Schemas.of())
    if taken is None or not taken.closed:
        return
    for name, setting in launch.flags.items():
        if taken.takes(name) or name in _OF_LAUNCHERS or len(name) == 1:
            continue
        close = next(iter(difflib.get_close_matches(name, sorted(taken.flags), 1, 0.8)), "")
        meant = f" Did you mean `--{close}`?" if close else ""
        rename = close and setting.place.key.startswith("--")
        yield Finding(
            f"`{launch.script}` has no flag `--{name}`: its parser stops with an error.{meant}",
            place=setting.place,
            evidence=Evidence(Level.TEXT, {"flag": name, "parser": taken.parser, "flags": len(taken.flags)}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call it `--{close}`." if close else "Remove the flag, or add it to the script's parser.",
                (Change(Edit.RENAME, setting.place, f"--{name}", to=f"--{close}"),) if rename else (),
            ),
        )


def _dashed(launch: Launch) -> Iterator[Said]:
    dashed = [setting for setting in launch.flags.values() if setting.place.key.startswith("--")]
    if dashed:
        names = ", ".join(f"`{setting.place.key}`" for setting in dashed)
        yield Finding(
            f"{names} after a configuration: LLaMA-Factory reads what follows a YAML file as `key=value`, and stops"
            f" here.",
            place=dashed[0].place,
            also=tuple(setting.place for setting in dashed[1:]),
            evidence=Evidence(Level.TEXT, {"flags": [setting.name for setting in dashed]}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, f"Write `{dashed[0].name}=...`, without dashes."),
        )


RULE = Rule(
    code="CFG008",
    name="refused-flag",
    summary="A command passes a flag that the program's parser refuses.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The flags of a command are compared with those that the script's own parser takes: `argparse`, or the"
        " dataclasses behind `HfArgumentParser` and `TrlParser`, whose fields are read from the installed version.",
        why="The job waits for its machines, starts, and ends at once.",
        detected="E0: the parser's flags are read from the script. A parser that could not be read whole is not"
        " judged.",
        proven="`python train.py --help` does not list the flag.",
        deliberate=("A part of the script that this reading does not see adds the flag.",),
        sources=("Python's argparse; `HfArgumentParser`; LLaMA-Factory 0.9.5, `hparams/parser.py` `read_args`",),
    ),
    bad=Example(
        {"run.sh": "python train.py --learning_rate 1e-5\n", "train.py": _SCRIPT}, says="no flag `--learning_rate`"
    ),
    good=Example({"run.sh": "python train.py --lr 1e-5\n", "train.py": _SCRIPT}),
)
