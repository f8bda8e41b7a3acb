"""Every key of a configuration as a flag of a command, with the text of the key; and what was given as a configuration."""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter
from pydantic.fields import FieldInfo

from dynotune.config.checking.problems import expected
from dynotune.config.fates.aliases import ALIASES
from dynotune.config.fates.fate import Fate
from dynotune.config.fates.launcher import LAUNCHER
from dynotune.config.fates.legacy import LEGACY, RENAMED
from dynotune.config.keys.topics import topics
from dynotune.config.load import ONE_SPEEDUP, load_config
from dynotune.config.reading.flags import Words
from dynotune.config.reading.forms import accepts
from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError
from dynotune.speedups.registry import speedups

Config = TypeVar("Config", bound=WholeConfig)
Command = TypeVar("Command", bound=Callable[..., Any])

_ONE_SPEEDUP = "speedups__"
"""As `ONE_SPEEDUP`, in the name of a Python parameter."""


def with_key_flags(*methods: type[WholeConfig]) -> Callable[[Command], Command]:
    """Give a command one flag for every key of these configurations, in their order: a key that several have is shown as the
    first one has it. Keys that are not ours are hidden flags, so that their fate can be said."""
    fields: dict[str, FieldInfo] = {}
    groups: dict[str, Group] = {}
    fates: dict[str, Fate] = {}
    aliases = dict.fromkeys(ALIASES, "")
    for one in methods:
        for topic in topics(one):
            group = Group(topic.title, help=topic.about, sort_key=1 + len(groups))
            new = [key for key in topic.fields if key not in fields]
            fields |= {key: one.model_fields[key] for key in new}
            groups |= dict.fromkeys(new, group)
        fates = {**one.method.fates, **fates}
        aliases |= one.method.aliases

    def with_flags(command: Command) -> Command:
        own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown = [_flag(key, field, groups[key]) for key, field in fields.items()]
        names = {*fields, *(each.name for each in own)}
        each = [_hidden_flag(f"{_ONE_SPEEDUP}{name}", f"{ONE_SPEEDUP}{name}") for name in speedups()]
        switches = [f"no_{key}" for key in {**fates, **fields} if _is_switch(key, fields, fates)]
        hidden = dict.fromkeys((*fates, *RENAMED, *LEGACY, *LAUNCHER, *aliases, *switches))
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*own, *shown, *each, *(_hidden_flag(name) for name in hidden if name not in names)]
        )
        return command

    return with_flags


def _flag(key: str, field: FieldInfo, group: Group) -> inspect.Parameter:
    default = field.get_default(call_default_factory=True)
    text = " ".join((field.description or "").split())
    return _parameter(
        key,
        Parameter(
            name=f"--{key}",
            consume_multiple=True,
            negative=(),
            help=f"{text} [{expected(field.annotation)}; default: {json.dumps(default)}]",
            group=group,
            show_default=False,
        ),
    )


def _hidden_flag(key: str, flag: str | None = None) -> inspect.Parameter:
    return _parameter(key, Parameter(name=f"--{flag or key}", consume_multiple=True, negative=(), show=False))


def _parameter(key: str, flag: Parameter) -> inspect.Parameter:
    # Words stay words: the configuration reads them by the key's type, so that a file and a flag mean the same.
    annotation = Annotated[list[str] | None, flag]
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _is_switch(key: str, fields: Mapping[str, FieldInfo], fates: Mapping[str, Fate]) -> bool:
    if key in fields:
        return accepts(fields[key].annotation).boolean
    return isinstance(fates[key].default, bool)


def load(config: Path | None, words: Mapping[str, list[str] | None], into: type[Config], *, to_run: bool) -> Config:
    """The configuration that a command was given, as a file and by flags.

    to_run: whether a model and data must be named. Raises `ConfigError`.
    """
    flags: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, given in words.items():
        if given is None:
            continue
        if name.startswith(_ONE_SPEEDUP):
            name = ONE_SPEEDUP + name.removeprefix(_ONE_SPEEDUP)
        negated = name.startswith("no_") and name not in {*into.model_fields, *RENAMED, *LEGACY, *LAUNCHER}
        key = name.removeprefix("no_") if negated else name
        if key in flags:
            raise ConfigError(f"flags --{key} and --no_{key} are both given. Keep one.")
        if negated and given:
            raise ConfigError(f"flag --{name}: takes no value.")
        flags[key] = False if negated else Words(given)
        spelled[key] = f"--{name}"
    if config is None and not flags:
        raise ConfigError(
            f"nothing to do: give `--config FILE` or flags. `dynotune {into.method.command} --help` lists them."
        )
    resolved = load_config(config, flags, spelled=spelled, into=into)
    if to_run:
        _require(resolved)
    return resolved


def _require(config: WholeConfig) -> None:
    """What a command needs and a Python call may bring as objects."""
    missing = []
    if config.model_name_or_path is None:
        missing.append("`model_name_or_path` (a hub id or a folder)")
    if config.dataset_name is None and not config.datasets:
        missing.append("`dataset_name` (a file, folder, glob or hub id) or `datasets`")
    if missing:
        raise ConfigError(f"missing: {' and '.join(missing)}.")
