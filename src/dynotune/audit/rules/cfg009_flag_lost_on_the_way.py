"""CFG009: a command passes a flag that the script drops without a word."""

from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.read.launchers.accepts import accepts
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.schema import Schemas

_SCRIPT = (
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=1e-5)\n"
    "{}args, _ = parser.parse_known_args()\nprint(args.lr)\n"
)
_BF16 = "parser.add_argument('--bf16', action='store_true')\n"


def check(launch: Launch, project: Project) -> Iterator[Said]:
    scripts = {script.file: script for script in project.scripts}
    script = scripts.get(launch.script)
    taken = accepts(script, scripts, Schemas.of()) if script is not None else None
    if taken is None or not taken.drops:
        return
    lost = [setting for name, setting in launch.flags.items() if not taken.takes(name) and name != "local_rank"]
    if not lost:
        return
    names = ", ".join(f"`{setting.place.key or setting.name}`" for setting in lost)
    yield Finding(
        f"{names} {'go' if len(lost) > 1 else 'goes'} nowhere: `{launch.script}` takes the flags that it knows"
        " (`parse_known_args`) and drops the rest without a word.",
        place=lost[0].place,
        also=tuple(setting.place for setting in lost[1:]),
        evidence=Evidence(Level.TEXT, {"flags": [setting.name for setting in lost], "parser": "parse_known_args"}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, "Add the flag to the script's parser, or take it out of the command."),
    )


RULE = Rule(
    code="CFG009",
    name="flag-lost-on-the-way",
    summary="A script drops a flag of the command that starts it.",
    group=Group.CONFIGURATION,
    subject=Subject.LAUNCH,
    check=check,
    page=Page(
        what="`parse_known_args` takes what it knows; where the rest is thrown away, a misspelled or forgotten flag is"
        " neither used nor refused.",
        why="The command asks for bf16, a length or a rate, and the run has the default.",
        detected="E0: the flags of the command against those of the script's parser, where nothing else uses the rest.",
        proven="`python train.py --help` does not list the flag.",
        deliberate=("A flag that only the launcher or another part of the script looks for in `sys.argv`.",),
        sources=("Python's documentation of `parse_known_args`",),
    ),
    bad=Example(
        {"run.sh": "python train.py --lr 1e-5 --bf16\n", "train.py": _SCRIPT.format("")}, says="`--bf16` goes nowhere"
    ),
    good=Example({"run.sh": "python train.py --lr 1e-5 --bf16\n", "train.py": _SCRIPT.format(_BF16)}),
)
