"""The commands that take a configuration: `sft`, `prepare`, `plan`. Every key is a flag, with the text of the key."""

import contextlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console

from dynotune.command_line import SHOW_MEMORY, WORDS
from dynotune.config.checking.problems import expected
from dynotune.config.fates.aliases import ALIASES
from dynotune.config.fates.launcher import LAUNCHER
from dynotune.config.fates.legacy import LEGACY, RENAMED
from dynotune.config.fates.table import SFT_FATES
from dynotune.config.keys.topics import topics
from dynotune.config.load import ONE_SPEEDUP, load_config
from dynotune.config.reading.flags import Words
from dynotune.config.reading.forms import accepts
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError, Interrupted
from dynotune.parallel.launch import launch, must_be_launched
from dynotune.say import sayer
from dynotune.speedups.registry import speedups

_ONE_SPEEDUP = "speedups__"
"""As `ONE_SPEEDUP`, in the name of a Python parameter."""

_OURS = Group("Command", sort_key=0)
_ConfigFile = Annotated[
    Path | None,
    Parameter(name="--config", help="A YAML or JSON file with any of the keys below. Flags win over it.", group=_OURS),
]
_PrintConfig = Annotated[
    bool,
    Parameter(
        name="--print_config",
        negative=(),
        help="Print the resolved configuration as YAML, non-defaults marked, and stop.",
        group=_OURS,
    ),
]
_Json = Annotated[
    bool, Parameter(name="--json", negative=(), help="Print the result as one JSON object on stdout.", group=_OURS)
]


def _with_key_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one flag for every key. Keys that are not ours are hidden flags, so that their fate can be said."""
    own = [one for one in inspect.signature(command).parameters.values() if one.kind is not one.VAR_KEYWORD]
    shown = [
        _flag(key, Group(topic.title, help=topic.about, sort_key=place))
        for place, topic in enumerate(topics(SFTConfig), 1)
        for key in topic.fields
    ]
    names = {*SFTConfig.model_fields, *(one.name for one in own)}
    each = [_hidden_flag(f"{_ONE_SPEEDUP}{name}", f"{ONE_SPEEDUP}{name}") for name in speedups()]
    switches = [f"no_{key}" for key in (*SFTConfig.model_fields, *SFT_FATES) if _is_switch(key)]
    hidden = dict.fromkeys((*SFT_FATES, *RENAMED, *LEGACY, *LAUNCHER, *ALIASES, *switches))
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*own, *shown, *each, *(_hidden_flag(name) for name in hidden if name not in names)]
    )
    return command


def _flag(key: str, group: Group) -> inspect.Parameter:
    field = SFTConfig.model_fields[key]
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


def _is_switch(key: str) -> bool:
    if key in SFTConfig.model_fields:
        return accepts(SFTConfig.model_fields[key].annotation).boolean
    return isinstance(SFT_FATES[key].default, bool)


def _load(config: Path | None, words: dict[str, list[str] | None], *, to_run: bool) -> SFTConfig:
    flags: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, given in words.items():
        if given is None:
            continue
        if name.startswith(_ONE_SPEEDUP):
            name = ONE_SPEEDUP + name.removeprefix(_ONE_SPEEDUP)
        negated = name.startswith("no_") and name not in {*SFTConfig.model_fields, *RENAMED, *LEGACY, *LAUNCHER}
        key = name.removeprefix("no_") if negated else name
        if key in flags:
            raise ConfigError(f"flags --{key} and --no_{key} are both given. Keep one.")
        if negated and given:
            raise ConfigError(f"flag --{name}: takes no value.")
        flags[key] = False if negated else Words(given)
        spelled[key] = f"--{name}"
    if config is None and not flags:
        raise ConfigError("nothing to do: give `--config FILE` or flags. `dynotune sft --help` lists them.")
    resolved = load_config(config, flags, spelled=spelled)
    if to_run:
        _require(resolved)
    return resolved


def _require(config: SFTConfig) -> None:
    """What a command needs and a Python call may bring as objects."""
    missing = []
    if config.model_name_or_path is None:
        missing.append("`model_name_or_path` (a hub id or a folder)")
    if config.dataset_name is None and not config.datasets:
        missing.append("`dataset_name` (a file, folder, glob or hub id) or `datasets`")
    if missing:
        raise ConfigError(f"missing: {' and '.join(missing)}.")


@contextlib.contextmanager
def _console(as_json: bool) -> Iterator[Console]:
    """Where a command prints. With `--json`, stdout is kept for the result."""
    if as_json:
        with contextlib.redirect_stdout(sys.stderr):
            yield Console(stderr=True)
    else:
        yield Console()


_ProveOnly = Annotated[
    bool,
    Parameter(
        name="--prove_only",
        negative=(),
        help="Stop before the first update, behind forward and backward of the largest micro-batch: on one process.",
        group=_OURS,
    ),
]
_NoProve = Annotated[
    bool,
    Parameter(
        name="--no_prove",
        negative=(),
        help="With `--gpus`: start all processes at once. A mistake then shows on all of them, later and more than once.",
        group=_OURS,
    ),
]


_ShowMemory = Annotated[
    bool,
    Parameter(
        name="--show_memory",
        negative=(),
        help="Print what there was to choose from: memory and speed by policy of activations and size of micro-batches.",
        group=_OURS,
    ),
]


@_with_key_flags
def sft(
    *,
    config: _ConfigFile = None,
    print_config: _PrintConfig = False,
    prove_only: _ProveOnly = False,
    no_prove: _NoProve = False,
    show_memory: _ShowMemory = False,
    as_json: _Json = False,
    **keys: Any,
) -> int | None:
    """`dynotune sft`; its help stands where it is registered."""
    resolved = _load(config, keys, to_run=not print_config)
    if print_config:
        sys.stdout.write(resolved.to_yaml())
        return None
    SHOW_MEMORY.set(show_memory)
    if prove_only:
        _prove(resolved, as_json)
        return None
    if must_be_launched(resolved):
        return _launch(resolved, prove=not no_prove, as_json=as_json)
    with _console(as_json) as console:
        from dynotune.train.sft import train_sft

        try:
            result, left = train_sft(resolved, console=console), None
        except Interrupted as interruption:
            if not as_json:
                raise
            result, left = interruption.result, interruption
    if as_json and os.environ.get("RANK", "0") == "0":
        summary = {"folder": str(result.folder), "steps": result.steps, "summary": result.summary}
        sys.stdout.write(json.dumps(summary) + "\n")
    if left:
        raise left
    return None


def _prove(config: SFTConfig, as_json: bool) -> None:
    with _console(as_json) as console:
        from dynotune.train.sft import prove_sft

        figures = prove_sft(config, console)
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")


def _launch(config: SFTConfig, *, prove: bool, as_json: bool) -> int:
    """Start the processes of `gpus`; each gets the words of this command line."""
    words = list(WORDS.get())
    folder = config.output_dir
    if folder is None:  # one name for all of them
        folder = str(Path("runs") / time.strftime("sft-%Y%m%d-%H%M%S"))
        words += ["--output_dir", folder]
    with _console(as_json) as console:
        return launch(
            config,
            words,
            Path(folder),
            prove,
            sayer(console),
        )


_Show = Annotated[
    int,
    Parameter(name="--show", help="First print this many rows with their labelled tokens coloured.", group=_OURS),
]


_Rebuild = Annotated[
    bool, Parameter(name="--rebuild", negative=(), help="Tokenise anew, whatever the token store has.", group=_OURS)
]
_Verify = Annotated[
    bool,
    Parameter(
        name="--verify",
        negative=(),
        help="Check every byte of the stored tokens. Opening does so up to 4 GiB; beyond, only this does.",
        group=_OURS,
    ),
]
_Prune = Annotated[
    bool,
    Parameter(
        name="--prune",
        negative=(),
        help="Remove token stores that were not used for `--older_than` days, were never finished or are damaged, and stop.",
        group=_OURS,
    ),
]
_OlderThan = Annotated[
    float, Parameter(name="--older_than", help="Days, for `--prune`. 0 removes all that nobody has open.", group=_OURS)
]
_Export = Annotated[
    Path | None,
    Parameter(
        name="--export",
        help="Write the tokenised training and evaluation rows for other trainers: a .parquet or .jsonl file, or a folder.",
        group=_OURS,
    ),
]
_ExportPacked = Annotated[
    int | None,
    Parameter(
        name="--export_packed",
        help="Export rows that hold several documents, of up to this many tokens, with `position_ids` and `seq_lengths`.",
        group=_OURS,
    ),
]


@_with_key_flags
def prepare(
    *,
    config: _ConfigFile = None,
    show: _Show = 0,
    rebuild: _Rebuild = False,
    verify: _Verify = False,
    prune: _Prune = False,
    older_than: _OlderThan = 30.0,
    export: _Export = None,
    export_packed: _ExportPacked = None,
    print_config: _PrintConfig = False,
    as_json: _Json = False,
    **keys: Any,
) -> None:
    """`dynotune prepare`; its help stands where it is registered."""
    if prune and config is None and not any(value is not None for value in keys.values()):
        resolved = SFTConfig()  # stores are pruned without any configuration, too
    else:
        resolved = _load(config, keys, to_run=not (print_config or prune))
    if print_config:
        sys.stdout.write(resolved.to_yaml())
        return
    if show < 0:
        raise ConfigError(f"flag --show: {show} rows cannot be shown. Give a number of rows.")
    if older_than < 0:
        raise ConfigError(f"flag --older_than: {older_than:g} days are none. Give 0 or more.")
    if export_packed is not None and export is None:
        raise ConfigError("flag --export_packed: says how to export, and `--export` does not say where. Give both.")
    with _console(as_json) as console:
        from dynotune.data.prepare import PrepareOptions, prepare_data, prune_stores

        if prune:
            told = prune_stores(resolved.token_cache_dir, older_than, console)
        else:
            told = prepare_data(resolved, PrepareOptions(show, rebuild, verify, export, export_packed), console)
    if as_json:
        sys.stdout.write(json.dumps(told) + "\n")


_Rate = Annotated[
    float | None,
    Parameter(
        name="--rate",
        help="Real tokens a second, for the time a run will take. Default: of the run in `output_dir`, if there is one.",
        group=_OURS,
    ),
]
_Memory = Annotated[
    float | None,
    Parameter(
        name="--memory",
        help="GiB that the device may use, where it is not here. Default: what is free on the GPU.",
        group=_OURS,
    ),
]


@_with_key_flags
def plan(
    *,
    config: _ConfigFile = None,
    rate: _Rate = None,
    memory: _Memory = None,
    show_memory: _ShowMemory = False,
    print_config: _PrintConfig = False,
    as_json: _Json = False,
    **keys: Any,
) -> None:
    """`dynotune plan`; its help stands where it is registered."""
    resolved = _load(config, keys, to_run=not print_config)
    if print_config:
        sys.stdout.write(resolved.to_yaml())
        return
    for flag, given in (("--rate", rate), ("--memory", memory)):
        if given is not None and not given > 0:
            raise ConfigError(f"flag {flag}: {given:g} must be above 0.")
    with _console(as_json) as console:
        from dynotune.plan.command import plan_run

        planned = plan_run(resolved, console, rate, memory, show_memory)
    if as_json:
        sys.stdout.write(json.dumps(planned) + "\n")
