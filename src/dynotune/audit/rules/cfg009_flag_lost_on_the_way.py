"""CFG009: a command passes a flag that the script drops without a word."""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.accepts import Accepts, accepts
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.schema import Schemas
from dynotune.audit.shapes.arguments_of_functions import arguments_of_functions
from dynotune.audit.shapes.arguments_that_stay_behind import arguments_that_stay_behind
from dynotune.audit.shapes.exported_in_vain import exported_in_vain
from dynotune.audit.shapes.flags_that_fire_drops import flags_that_fire_drops
from dynotune.audit.shapes.overrides_of_nothing import overrides_of_nothing
from dynotune.audit.shapes.set_and_not_exported import set_and_not_exported
from dynotune.audit.shapes.swallowed_by_a_function import swallowed_by_a_function, unread_parameters
from dynotune.audit.shapes.values_that_a_parser_refuses import turned_round
from dynotune.audit.shapes.values_that_stay_behind import values_that_stay_behind
from dynotune.audit.shapes.variables_of_make_in_vain import variables_of_make_in_vain
from dynotune.audit.shapes.variables_that_nothing_gets import variables_that_nothing_gets

WHOLE = re.compile(r"\bvars\(|\basdict\(|__dict__|\bfields\(|_get_kwargs|sys\.argv|namespace=")
SHOWN = re.compile(r"(\bconfig\s*=\s*|print\(|dumps?\([^()\n]{0,80}|log\w*\.\w+\([^()\n]{0,80})(vars|asdict)\([\w.]*\)")
"""What takes all flags at once; a record of them is no use."""

SEEDS = re.compile(r"\b\w*seed\w*\s{0,4}\(|\bGenerator\(|\bseed=")
"""A program that seeds nothing is MSR003's: there it is no matter of a flag that is not read."""

_LAUNCHERS = frozenset({"local_rank", "deepspeed", "deepspeed_config", "config", "help"})
_OF_PRECISION = frozenset({"mixed_precision", "bf16", "fp16"})
"""Where accelerate computes, PRC002 says what comes of them."""

_SCRIPT = (
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=1e-5)\n"
    "{}args, _ = parser.parse_known_args()\nprint(args.lr)\n"
)
_BF16 = "parser.add_argument('--bf16', action='store_true')\n"
_UNREAD = (
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=1e-5)\n"
    "parser.add_argument('--flash', action='store_true')\nargs = parser.parse_args()\nprint(args.lr)\n"
)


_HANDS_ON = re.compile(r"\$[@*2-9]|\$\{[@*2-9]|\bgetopts?\b|\bshift\b|\$\{?(?:BASH_ARGV|argv)")
_SPEAKS = re.compile(r"^\s*(?:echo|printf|log|logger)\b")


def _not_handed_on(launch: Launch, project: Project) -> Iterator[Said]:
    """Flags that a shell script's usage or a document gives it, of which it hands none to what it starts."""
    name, text = launch.file.rpartition("/")[2], project.texts.get(launch.file, "")
    first = next((one for one in project.launches if one.file == launch.file), None)
    if first is not launch or not name.endswith((".sh", ".bash", ".slurm", ".sbatch")):
        return
    lines = text.split("\n")
    if _HANDS_ON.search("\n".join(one for one in lines if not one.lstrip().startswith("#") and not _SPEAKS.match(one))):
        return
    given = re.compile(rf"(?<![\w-]){re.escape(name)}\b[^\n|;&>#]*?\s\[?--([a-z][\w-]*)[^\n|;&]*")
    promised = [(launch.file, number, one) for number, one in enumerate(lines, 1) if one.lstrip().startswith("#")]
    promised += [
        (file, number, one)
        for file, document in project.documents.items()
        for number, one in enumerate(document.split("\n"), 1)
    ]
    found = [
        (file, number, said) for file, number, one in promised if (said := given.search(one)) and said[1] != "help"
    ]
    if not found:
        return
    flags = list(dict.fromkeys(flag for *_, said in found for flag in re.findall(r"(?<=--)[a-z][\w-]*", said[0])))
    shown = ", ".join(f"`--{flag}`" for flag in flags[:3])
    yield Finding(
        f"`{launch.file}` is said to take {shown}, and hands none of its arguments behind the first to what it starts: they"
        " are dropped without a word.",
        place=launch.place,
        also=tuple(dict.fromkeys(Place(file, number) for file, number, _ in found)),
        evidence=Evidence(Level.TEXT, {"promised": flags}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, 'Take the first one off (`shift`) and give the rest on: `"$@"`.'),
    )


def _once_a_line(launch: Launch, *shapes: Iterable[Said]) -> Iterator[Said]:
    """Of ways to say that what a line sets reaches nothing, the first."""
    seen: set[tuple[str, int]] = set()
    for said in chain(*shapes):
        if not isinstance(said, Finding):
            yield said
            continue
        there = {(place.file, place.line) for place in (said.place, *said.also)} - {
            (launch.place.file, launch.place.line)
        }
        if not there & seen:
            yield said
        seen |= there


def check(launch: Launch, project: Project) -> Iterator[Said]:
    yield from _not_handed_on(launch, project)
    scripts = {script.file: script for script in project.scripts}
    script = scripts.get(launch.script)
    taken = accepts(script, scripts, Schemas.of()) if script is not None else None
    yield from _once_a_line(
        launch,
        values_that_stay_behind(launch, script, taken, project) if script is not None and taken is not None else (),
        arguments_that_stay_behind(launch, project),
        arguments_of_functions(launch, project),
        set_and_not_exported(launch, project),
        variables_that_nothing_gets(launch, project),
    )
    yield from variables_of_make_in_vain(launch, project)
    if script is not None:
        yield from exported_in_vain(launch, script, project)
        lost, why = flags_that_fire_drops(launch, script, project.scripts)
        yield from _finding(lost, why, "Give the function such a parameter and use it, or take the flag out.")
        swallowed, function = swallowed_by_a_function(launch, script)
        why = f"`{function}` of `{launch.script}` takes every flag in its `**` argument and does nothing with them"
        yield from _finding(swallowed, why, "Name them among its parameters and use them, or take them out.")
        yield from _finding(
            overrides_of_nothing(launch, script, project),
            f"OmegaConf adds what the file lacks, and `{launch.script}` reads no key of this name",
            "Give it the file's own name, or take it out.",
        )
        unread_ones, function = unread_parameters(launch, script)
        why = f"`{function}` of `{launch.script}` has a parameter of this name and never uses it"
        yield from _finding(unread_ones, why, "Use it where it was meant to work, or take it out of both.")
    if taken is None or script is None:
        return
    if taken.drops:
        lost = [setting for name, setting in launch.flags.items() if not taken.takes(name) and name != "local_rank"]
        why = f"`{launch.script}` takes the flags that it knows (`parse_known_args`) and drops the rest without a word"
        yield from _finding(lost, why, "Add the flag to the script's parser, or take it out of the command.")
    for one in turned_round(launch, taken):
        setting = launch.flags.get(one.flag.lstrip("-").replace("-", "_"))
        yield Finding(
            f"`{one.flag} {one.why}` turns it on: `type=bool` in `{launch.script}` makes True of all but the empty word.",
            place=setting.place if setting is not None else launch.place,
            evidence=Evidence(Level.TEXT, {"flag": one.flag, "given": one.why}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Give it `action=argparse.BooleanOptionalAction` and write `--no-...`, or a function that reads the word.",
            ),
        )
    unread = [launch.flags[name] for name in _unread(script, taken, launch, project)]
    why = f"`{launch.script}` has a flag of this name and no line that reads it"
    yield from _finding(unread, why, "Use it where it was meant to work, or take it out of the parser and the command.")


def left_by_launchers(project: Project) -> frozenset[Place]:
    """Keys of configurations that a launcher in Python leaves out, as this rule says it."""
    scripts = {script.file: script for script in project.scripts}
    found: set[Place] = set()
    for launch in project.launches:
        script = scripts.get(launch.script) if launch.file.endswith(".py") else None
        taken = accepts(script, scripts, Schemas.of()) if script is not None else None
        if script is not None and taken is not None:
            found |= {place for one in values_that_stay_behind(launch, script, taken, project) for place in one.also}
    return frozenset(found)


def _finding(lost: list[Setting], why: str, remedy: str) -> Iterator[Said]:
    if not lost:
        return
    names = ", ".join(f"`{setting.place.key or setting.name}`" for setting in lost)
    yield Finding(
        f"{names} {'go' if len(lost) > 1 else 'goes'} nowhere: {why}.",
        place=lost[0].place,
        also=tuple(setting.place for setting in lost[1:]),
        evidence=Evidence(Level.TEXT, {"flags": [setting.name for setting in lost]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, remedy),
    )


def _unread(script: Script, taken: Accepts, launch: Launch, project: Project) -> Iterator[str]:
    """Flags of the script's own that the command gives and no file of the project reads, as an attribute or by a quoted
    name."""
    skipped = _LAUNCHERS | (_OF_PRECISION if script.calls_of("Accelerator") else frozenset())
    given = [name for name in launch.flags if name in taken.flags - skipped and f".{name}" not in script.source]
    if not given:
        return
    own = taken.stored if taken.parser == "argparse" else taken.stored | _of_plain_dataclasses(project)
    given = [name for name in given if name in own]
    sources = [code(one) for one in project.scripts] if given else []
    if any(WHOLE.search(SHOWN.sub("", source)) for source in sources):
        return
    text = "\n".join(sources)
    given = [name for name in given if name != "seed" or SEEDS.search(text)]
    for name in given:
        word = re.escape(name)
        if not re.search(rf"\.{word}\b|(?<!--)['\"]{word}['\"]|\b{word}\s*=(?!=)[^=\n]*\bargs?\b", text):
            yield name


def _of_plain_dataclasses(project: Project) -> frozenset[str]:
    """Fields of classes without bases: those of a trainer's own are read by the trainer."""
    based: set[str] = set()
    found: set[str] = set()
    for script in project.scripts:
        for node in script.tree.body:
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                names = {
                    one.target.id
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
                (based if node.bases else found).update(names)
    return frozenset(found - based)


RULE = Rule(
    code="CFG009",
    name="flag-lost-on-the-way",
    summary="A script drops a flag of the command that starts it.",
    group=Group.CONFIGURATION,
    subject=Subject.LAUNCH,
    check=check,
    page=Page(
        what="A flag that is parsed and never read does nothing. `parse_known_args` takes what it knows; where the rest is"
        " thrown away, a misspelled or forgotten flag is neither used nor refused.",
        why="The command asks for bf16, a length or a rate, and the run has the default.",
        detected="E0: settings of training that a launcher exports and no line reads; flags, or its own argument, that a"
        " shell script keeps in a variable which no command gets, or a setting of the run (`EPOCHS=${EPOCHS:-3}`), or a"
        " configuration's name, that it or a Makefile keeps so, also where a document gives it to make; flags that"
        " a shell script's usage line or a document gives it, where it hands on its first argument at"
        " most; arguments that another launcher, or the same file, gives a script or a function beyond those that it looks"
        " at; a variable that it sets in a line of its own, which the program or a package reads and nothing exports; a"
        " word or a variable with which a document starts a launcher that reads no argument, or sets the variable"
        " itself; values that the launcher sources under a flag's name, beside others that it passes, and does not pass; its"
        " own variables of a flag's name, with another value than the flag's default, that no command gets; keys of a"
        " configuration that it takes apart one by one (`yq`, `yaml.safe_load`) and leaves out; the flags of the command"
        " against those of the script's parser, where nothing else uses the rest; and flags that the parser takes and no"
        " file of the project reads, as an attribute or by a quoted name. Where all flags are handed on at once"
        " (`vars(args)`, `asdict`), nothing is said.",
        proven="`python train.py --help` does not list the flag.",
        deliberate=("A flag that only the launcher or another part of the script looks for in `sys.argv`.",),
        sources=("Python's documentation of `parse_known_args`",),
    ),
    bad=Example(
        {"run.sh": "python train.py --lr 1e-5 --bf16\n", "train.py": _SCRIPT.format("")}, says="`--bf16` goes nowhere"
    ),
    good=Example(
        {"run.sh": "python train.py --lr 1e-5 --bf16\n", "train.py": _SCRIPT.format(_BF16) + "print(args.bf16)\n"}
    ),
    also_bad=(
        Example({"run.sh": "python train.py --lr 1e-5 --flash\n", "train.py": _UNREAD}, says="no line that reads it"),
        Example(
            {
                "run.sh": "# usage: ./run.sh sft.json [--lr 1e-5] [--resume DIR]\nCONFIG=${1:?}\n"
                'echo "args: $*"\nexec accelerate launch train.py "$CONFIG"\n',
                "train.py": _SCRIPT.format(""),
            },
            says="is said to take `--lr`, `--resume`",
        ),
    ),
)
