"""CFG016: a command replaces a key that Hydra's configuration does not have."""

import difflib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.read.configs.hydra import Composed, composed, primary_of
from dynotune.audit.read.launched import overrides
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_ELSEWHERE = frozenset({"config_path", "cp", "config_dir", "cd", "config_name", "cn", "p", "experimental_rerun"})
"""Flags of Hydra's by which another configuration takes part."""

_SCRIPT = (
    "import hydra\n\n\n@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
    "    print(cfg.optim.lr)\n\n\nmain()\n"
)
_CONFIG = "defaults:\n  - optim: adamw\n  - _self_\nseed: 1\n"
_OPTIM = "lr: 1.0e-5\nweight_decay: 0.1\n"


def check(launch: Launch, project: Project) -> Iterator[Said]:
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
            yield _finding(launch, whole, name, *lacking)


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


def _finding(launch: Launch, whole: Composed, name: str, above: str, there: Mapping[str, Any]) -> Finding:
    keys = sorted(map(str, there))
    close = next(iter(difflib.get_close_matches(name.rpartition(".")[2], keys, 1, 0.75)), "")
    prefix = f"{above}." if above else ""
    has = ", ".join(f"`{key}`" for key in keys[:8])
    meant = f" Did you mean `{prefix}{close}`?" if close else f" `{above or 'It'}` has {has}."
    return Finding(
        f"Hydra's configuration has no `{name}`, and it refuses to replace what is not there.{meant}",
        place=launch.place,
        evidence=Evidence(
            Level.RESOLVED, {"override": name, "files": sorted({config.file for _, config in whole.parts})}
        ),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, f"Give it the configuration's name, or write `+{name}=...` to add a key."),
    )


RULE = Rule(
    code="CFG016",
    name="override-of-nothing",
    summary="A command replaces a key that Hydra's configuration does not have.",
    group=Group.CONFIGURATION,
    subject=Subject.LAUNCH,
    check=check,
    page=Page(
        what="Words like `optim.lr=1e-5` of a command replace keys of the configuration that `@hydra.main` names, composed"
        " of its defaults and the groups that the command chooses.",
        why="Hydra closes the configuration for new keys: the run stops at once, in a sweep every run.",
        detected="E1: the files are composed as Hydra does, for defaults that name plain files and groups of the project."
        " Nothing is said where more takes part: a `ConfigStore`, other packages, another configuration by a flag.",
        proven='The run ends with "Could not override ...: To append to your config use +...".',
        deliberate=("None that is known.",),
        sources=("Hydra 1.3, `_internal/config_loader_impl.py`; its page on the override grammar",),
    ),
    bad=Example(
        {
            "run.sh": "python train.py optim.weight_decy=0.0\n",
            "train.py": _SCRIPT,
            "conf/config.yaml": _CONFIG,
            "conf/optim/adamw.yaml": _OPTIM,
        },
        says="Did you mean `optim.weight_decay`?",
    ),
    good=Example(
        {
            "run.sh": "python train.py optim.weight_decay=0.0 +optim.eps=1e-6 seed=2\n",
            "train.py": _SCRIPT,
            "conf/config.yaml": _CONFIG,
            "conf/optim/adamw.yaml": _OPTIM,
        }
    ),
)
