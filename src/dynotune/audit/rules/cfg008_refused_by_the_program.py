"""CFG008: a command passes what the program that it starts refuses: a flag, or a key that Hydra's configuration lacks."""

import difflib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.configs.hydra import Composed, composed, primary_of
from dynotune.audit.read.launched import overrides
from dynotune.audit.read.launchers.accepts import Accepts, accepts
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.schema import Schemas
from dynotune.audit.shapes.files_that_are_not_there import (
    deepspeed_that_is_not_there,
    files_that_are_not_there,
    program_that_is_not_there,
)
from dynotune.audit.shapes.flags_by_another_name import meant_by
from dynotune.audit.shapes.flags_of_another_launcher import flags_of_another_launcher
from dynotune.audit.shapes.flags_that_a_started_program_lacks import (
    OF_LAUNCHERS,
    STARTS,
    flags_that_a_started_program_lacks,
)
from dynotune.audit.shapes.keys_of_calls import keys_of_calls
from dynotune.audit.shapes.keys_of_own_classes import keys_of_own_classes
from dynotune.audit.shapes.keys_that_a_file_lacks import (
    Lacking,
    lacking_in_files,
    lacking_in_hydra,
    words_that_hydra_refuses,
)
from dynotune.audit.shapes.switches_given_by_files import switches_given_by_files
from dynotune.audit.shapes.values_that_a_parser_refuses import Refused, refused_values
from dynotune.audit.shapes.words_that_click_refuses import words_that_click_refuses

_SCRIPT = (
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=1e-5)\n"
    "args = parser.parse_args()\nprint(args.lr)\n"
)


def check(project: Project, _: Project) -> Iterator[Said]:
    for launch in project.launches:
        yield from _of_a_command(launch, project)
        yield from _of_hydra(launch, project)
        yield from files_that_are_not_there(launch, project)
        yield from program_that_is_not_there(launch, project)
        yield from _of_a_launcher(launch)
        for lacking in lacking_in_files(launch, project):
            yield _lacks(lacking, launch)
    for launch in project.told:
        yield from _of_a_launcher(launch)
        yield from _of_a_command(launch, project)
        yield from _of_hydra(launch, project)
    for refused, program in switches_given_by_files(project):
        yield _stops_at(refused, None, program, "argparse")
    if not project.jobs:
        yield from keys_of_calls(project)  # else they are unknown keys of a job
    for lacking in lacking_in_hydra(project):
        yield _lacks(lacking, None)
    for script in project.scripts:
        if STARTS.search(script.source):
            yield from flags_that_a_started_program_lacks(script, project)
    yield from _by_its_class(project)
    yield from deepspeed_that_is_not_there(project)


def _of_a_launcher(launch: Launch) -> Iterator[Said]:
    for name, setting, own in flags_of_another_launcher(launch):
        meant = f" It calls it `{own}`." if own else ""
        yield Finding(
            f"`{name}` has no flag `--{setting.name}`, which is another launcher's: it stops with an error.{meant}",
            place=setting.place if setting.place.file else launch.place,
            evidence=Evidence(Level.TEXT, {"launcher": name, "flag": setting.name}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, f"Call it `{own}`." if own else "Take it out, or start by that launcher."),
        )


def _lacks(lacking: Lacking, launch: Launch | None) -> Finding:
    close = next(iter(difflib.get_close_matches(lacking.key.rpartition(".")[2], list(lacking.near), 1, 0.6)), "")
    meant = f" Did you mean `{close}`?" if close else ""
    return Finding(
        f"`{lacking.read.file}` reads `{lacking.key}`, and `{lacking.config.file}` has no such key: the run stops there."
        f"{meant}",
        place=lacking.read,
        also=(Place(lacking.config.file, 1), *((launch.place,) if launch is not None else ())),
        evidence=Evidence(Level.RESOLVED, {"key": lacking.key, "configuration": lacking.config.file}),
        cause=f"{lacking.key} of {lacking.config.file}",
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, "Add the key to the configuration, or read the one that it has."),
    )


def _by_its_class(project: Project) -> Iterator[Said]:
    """Keys of a configuration that the script's class of options does not take."""
    for lost in keys_of_own_classes(project):
        if lost.filtered:
            continue
        shown = ", ".join(f"`{key}`" for key, _ in lost.keys[:4])
        yield Finding(
            f"`{lost.name}` has no field {shown} of `{lost.config.file}`: `{lost.name}(**...)` stops with a TypeError.",
            place=lost.keys[0][1],
            also=(*(place for _, place in lost.keys[1:]), lost.made),
            evidence=Evidence(Level.RESOLVED, {"keys": [key for key, _ in lost.keys], "class": lost.name}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, "Give the key its right name, or add the field to the class."),
        )


def _of_a_command(launch: Launch, project: Project) -> Iterator[Said]:
    if launch.program.startswith("llamafactory-cli ") and launch.configs:
        yield from _dashed(launch)
    scripts = {script.file: script for script in project.scripts}
    script = scripts.get(launch.script)
    if script is None:
        return
    for one in words_that_click_refuses(launch, script):
        yield _stops_at(one, launch, launch.script, "click")
    taken = accepts(script, scripts, Schemas.of(), tuple(launch.behind))
    if taken is None or not taken.closed:
        return
    program = f"{launch.script} {taken.command}".strip()
    yield from _of_values(launch, taken, program, project.pinned("torch"))
    for name, setting in {**launch.perhaps, **launch.flags}.items():
        if name in OF_LAUNCHERS or len(name) == 1 or _is_short(setting.place.key, taken):
            continue
        if taken.takes(name):
            meant = taken.meant_by(setting.place.key)
            if meant:
                yield _spelled_otherwise(program, setting, meant, taken.parser)
            continue
        if launch.file.endswith(".py") and setting.place.key in project.texts.get(launch.file, ""):
            continue  # said of the launcher's text
        close = meant_by(name, taken.flags - launch.flags.keys())
        meant = f" Did you mean `--{close}`?" if close else ""
        rename = setting.place.key.startswith("--") and difflib.get_close_matches(name, [close], 1, 0.8)
        yield Finding(
            f"`{program}` has no flag `--{name}`: its parser stops with an error.{meant}",
            place=setting.place,
            evidence=Evidence(Level.TEXT, {"flag": name, "parser": taken.parser, "flags": len(taken.flags)}),
            cause=f"flags that {program} does not have, line {launch.place.line}",
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call it `--{close}`." if close else "Remove the flag, or add it to the script's parser.",
                (Change(Edit.RENAME, setting.place, f"--{name}", to=f"--{close}"),) if rename else (),
            ),
        )


def _is_short(written: str, taken: Accepts) -> bool:
    """`-j8`, `-vv`: a flag of one letter with its value, or several of them."""
    return len(written) > 2 and written[0] == "-" and written[:2] in taken.spelled


def _of_values(launch: Launch, taken: Accepts, program: str, torch: tuple[int, ...] | None) -> Iterator[Said]:
    """Words that the parser stops at behind flags that it knows."""
    for one in refused_values(launch, taken, torch):
        yield _stops_at(one, launch, program, taken.parser)


def _stops_at(one: Refused, launch: Launch | None, program: str, parser: str) -> Finding:
    setting = launch.flags.get(one.flag.lstrip("-").replace("-", "_")) if launch is not None else None
    start = launch.place if launch is not None else one.places[0]
    place, *others = one.places or (setting.place if setting is not None else start,)
    return Finding(
        f"`{one.flag}` of `{program}` {one.why}: its parser stops with an error.",
        place=place,
        also=tuple(others),
        evidence=Evidence(Level.TEXT, {"flag": one.flag, "parser": parser}),
        cause=f"words that {program} refuses, line {start.line}",
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, "Write the command as the parser takes it, or change the parser."),
    )


def _word_of(launch: Launch, word: str, project: Project) -> Place:
    """The line of a command that a word stands in."""
    lines = project.texts.get(launch.file, "").split("\n")
    last = launch.place.end_line or launch.place.line
    for number in range(launch.place.line, min(last, len(lines)) + 1):
        if word in lines[number - 1]:
            return Place(launch.file, number)
    return launch.place


def _spelled_otherwise(program: str, setting: Setting, meant: str, parser: str) -> Finding:
    return Finding(
        f"`{program}` calls it `{meant}`, and has no flag `{setting.place.key}`: its parser stops with an error.",
        place=setting.place,
        evidence=Evidence(Level.TEXT, {"flag": setting.place.key, "parser": parser}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Call it `{meant}`.",
            (Change(Edit.RENAME, setting.place, setting.place.key, to=meant),),
        ),
    )


def _dashed(launch: Launch) -> Iterator[Said]:
    dashed = [setting for setting in launch.flags.values() if setting.place.key.startswith("--")]
    if dashed:
        names = ", ".join(f"`{setting.place.key}`" for setting in dashed)
        yield Finding(
            f"{names} after a configuration: LLaMA-Factory reads what follows a YAML file as `key=value`, and stops here.",
            place=dashed[0].place,
            also=tuple(setting.place for setting in dashed[1:]),
            evidence=Evidence(Level.TEXT, {"flags": [setting.name for setting in dashed]}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, f"Write `{dashed[0].name}=...`, without dashes."),
        )


_ELSEWHERE = frozenset({"config_path", "cp", "config_dir", "cd", "config_name", "cn", "p", "experimental_rerun"})
"""Flags of Hydra's by which another configuration takes part."""

_HYDRA = (
    "import hydra\n\n\n@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
    "    print(cfg.optim.lr)\n\n\nmain()\n"
)
_CONFIG = "defaults:\n  - optim: adamw\n  - _self_\nseed: 1\n"
_OPTIM = "lr: 1.0e-5\nweight_decay: 0.1\n"


def _of_hydra(launch: Launch, project: Project) -> Iterator[Said]:
    for word, why in words_that_hydra_refuses(launch, project):
        yield Finding(
            f"`{word}` is refused by `{launch.script}`: {why}.",
            place=_word_of(launch, word, project),
            evidence=Evidence(Level.RESOLVED, {"word": word}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, "Write it as `key=value`, for a key that the configuration has."),
        )
    script = next((one for one in project.scripts if one.file == launch.script), None)
    primary = primary_of(script) if script is not None else None
    if primary is None or _ELSEWHERE & set(launch.flags) or any("ConfigStore" in one.source for one in project.scripts):
        return
    configs = {config.file: config for config in project.configs}
    given = overrides(launch)
    whole = composed(configs, *primary)
    if whole is None:
        return
    choices = whole.groups | whole.choices
    options = {one.name: str(one.value) for one in given if one.name in choices}
    for name, option in options.items():
        lacking_option = _no_option(project, primary[0], name, option)
        if lacking_option:
            yield _of_no_option(launch, name, option, lacking_option)
            return
    if any(isinstance(one.value, Unknown) for one in given if one.name in choices):
        return
    whole = composed(configs, *primary, options) if options else whole
    if whole is None:
        return
    for name in (one.name for one in given):
        if "/" in name or "@" in name or name in whole.groups or name.partition(".")[0] == "hydra":
            continue
        lacking = _lacking(whole, name)
        if lacking is not None:
            yield _of_no_key(launch, whole, name, *lacking, _word_of(launch, f"{name}=", project))


def _no_option(project: Project, folder: str, name: str, option: str) -> list[str]:
    """The options that a group has, if this is none of them; empty where it is one, or cannot be told."""
    group = name.partition("@")[0]
    start = posixpath.join(folder, group) + "/"
    there = [one.file[len(start) :] for one in project.configs if one.file.startswith(start)]
    options = sorted(file.rpartition(".")[0] for file in there)
    plain = re.fullmatch(r"[\w./-]+", option) and option not in ("null", "None")
    return options if plain and options and option.removesuffix(".yaml") not in options else []


def _of_no_option(launch: Launch, name: str, option: str, there: Sequence[str]) -> Finding:
    has = ", ".join(f"`{one}`" for one in there[:8])
    return Finding(
        f"`{name}={option}` asks for a file that the group does not have: Hydra stops. It has {has}.",
        place=launch.place,
        evidence=Evidence(Level.RESOLVED, {"override": f"{name}={option}", "options": list(there)}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, "Name one of the group's files."),
    )


def _lacking(whole: Composed, name: str) -> tuple[str, Mapping[str, Any]] | None:
    """The path up to which the configuration goes, and the mapping there; None: it has the key, or does not tell."""
    here: Any = whole.values
    parts = name.split(".")
    for number, part in enumerate(parts):
        if not isinstance(here, Mapping) or not here:
            return None
        if part not in here:
            return ".".join(parts[:number]), here
        here = here[part]
    return None


def _of_no_key(
    launch: Launch, whole: Composed, name: str, above: str, there: Mapping[str, Any], place: Place
) -> Finding:
    keys = sorted(map(str, there))
    close = next(iter(difflib.get_close_matches(name.rpartition(".")[2], keys, 1, 0.75)), "")
    prefix = f"{above}." if above else ""
    has = ", ".join(f"`{key}`" for key in keys[:8])
    meant = f" Did you mean `{prefix}{close}`?" if close else f" `{above or 'It'}` has {has}."
    return Finding(
        f"Hydra's configuration has no `{name}`, and it refuses to replace what is not there.{meant}",
        place=place,
        evidence=Evidence(
            Level.RESOLVED, {"override": name, "files": sorted({config.file for _, config in whole.parts})}
        ),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, f"Give it the configuration's name, or write `+{name}=...` to add a key."),
    )


RULE = Rule(
    code="CFG008",
    name="refused-by-the-program",
    summary="A command passes a flag that the program's parser refuses, or replaces a key that Hydra's configuration lacks.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The flags of a command are compared with those that the script's own parser takes: `argparse`, or the"
        " dataclasses behind `HfArgumentParser` and `TrlParser`, whose fields are read from the installed version. Words"
        " like `optim.lr=1e-5` replace keys of the configuration that `@hydra.main` names, composed of its defaults and the"
        " groups that the command chooses. Keys of a file that a command names are compared with the fields of the dataclass"
        " that the script makes of it (`Options(**yaml.safe_load(f))`).",
        why="The job waits for its machines, starts, and ends at once, in a sweep every run: Hydra closes its configuration"
        " for new keys.",
        detected="E0: commands of shell files, of what a program starts, of cells of notebooks, and of documents and"
        " images; a configuration that they name and the project lacks, where one of its folder is called nearly"
        " so. The parser's flags are read from the script: of several, those that a run asks, together, and"
        " of sub-commands the one that the command names; of a function or class that Typer, Click or tyro makes a command"
        " of, its parameters; of absl, what the project's files define. Flags that"
        " differ in dashes and underscores alone are told apart as argparse, Typer and Click do. What stands in a"
        " file that the script imports counts"
        " as its own. A parser that could not be read whole is not judged. Of argparse, words behind known flags, too: a"
        " value behind a switch, none of the choices, no number, a flag that must be given, the rank that a launcher adds."
        " Flags of a launcher that are another's; keys that a program reads and its file has not. E1:"
        " Hydra's files are composed as it does, for defaults that name plain files and groups of the project. Nothing is"
        " said where more takes part: a `ConfigStore`, other packages, another configuration by a flag.",
        proven="`python train.py --help` does not list the flag; Hydra's run ends with"
        ' "Could not override ...: To append to your config use +...".',
        deliberate=("A part of the script that this reading does not see adds the flag.",),
        sources=(
            "Python's argparse; `HfArgumentParser`; LLaMA-Factory 0.9.5, `hparams/parser.py` `read_args`",
            "Hydra 1.3, `_internal/config_loader_impl.py`; its page on the override grammar",
        ),
    ),
    bad=Example(
        {"run.sh": "python train.py --learning_rate 1e-5\n", "train.py": _SCRIPT}, says="no flag `--learning_rate`"
    ),
    good=Example({"run.sh": "python train.py --lr 1e-5\n", "train.py": _SCRIPT}),
    also_bad=(
        Example(
            {
                "run.sh": "python train.py optim.weight_decy=0.0\n",
                "train.py": _HYDRA,
                "conf/config.yaml": _CONFIG,
                "conf/optim/adamw.yaml": _OPTIM,
            },
            says="Did you mean `optim.weight_decay`?",
        ),
    ),
    formerly=("CFG016",),
    former_names=(
        "override-of-nothing",
        "refused-flag",
    ),
)
