"""The commands that take a configuration: `sft`, `dpo`, `prepare`, `plan`. Every key is a flag, with the text of the key."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from rich.console import Console

from dynotune.cli_keys import load, with_key_flags
from dynotune.command_line import SHOW_MEMORY, WORDS
from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.config.whole import METHODS, WholeConfig
from dynotune.errors import ConfigError, Interrupted
from dynotune.parallel.launch import launch, must_be_launched
from dynotune.say import sayer

if TYPE_CHECKING:
    from dynotune.train.flow import RunResult

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


def _training_command(of: type[WholeConfig]) -> Callable[..., int | None]:
    """`dynotune sft` or `dynotune dpo`; its help stands where it is registered."""

    @with_key_flags(of)
    def command(
        *,
        config: _ConfigFile = None,
        print_config: _PrintConfig = False,
        prove_only: _ProveOnly = False,
        no_prove: _NoProve = False,
        show_memory: _ShowMemory = False,
        as_json: _Json = False,
        **keys: Any,
    ) -> int | None:
        resolved = load(config, keys, of, to_run=not print_config)
        if print_config:
            sys.stdout.write(resolved.to_yaml())
            return None
        SHOW_MEMORY.set(show_memory)
        return _train(resolved, prove_only=prove_only, no_prove=no_prove, as_json=as_json)

    return command


sft, dpo = _training_command(SFTConfig), _training_command(DPOConfig)


def _run(config: WholeConfig, console: Console) -> "RunResult":
    if isinstance(config, DPOConfig):
        from dynotune.train.dpo import train_dpo

        return train_dpo(config, console=console)
    from dynotune.train.sft import train_sft

    return train_sft(config, console=console)


def _prove(config: WholeConfig, console: Console) -> dict[str, Any]:
    if isinstance(config, DPOConfig):
        from dynotune.train.dpo import prove_dpo

        return prove_dpo(config, console)
    from dynotune.train.sft import prove_sft

    return prove_sft(config, console)


def _train(config: WholeConfig, *, prove_only: bool, no_prove: bool, as_json: bool) -> int | None:
    """Run, prove, or start the processes of `gpus`; returns their exit code."""
    if prove_only:
        with _console(as_json) as console:
            figures = _prove(config, console)
        if as_json:
            sys.stdout.write(json.dumps(figures) + "\n")
        return None
    if must_be_launched(config):
        return _launch(config, prove=not no_prove, as_json=as_json)
    with _console(as_json) as console:
        try:
            result, left = _run(config, console), None
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


def _launch(config: WholeConfig, *, prove: bool, as_json: bool) -> int:
    """Start the processes of `gpus`; each gets the words of this command line."""
    words = list(WORDS.get())
    folder = config.output_dir
    if folder is None:  # one name for all of them
        folder = str(Path("runs") / time.strftime(f"{config.method.command}-%Y%m%d-%H%M%S"))
        words += ["--output_dir", folder]
    with _console(as_json) as console:
        return launch(config, words, Path(folder), prove, sayer(console))


_Method = Annotated[
    Literal["sft", "dpo"],
    Parameter(name="--method", help="What the configuration is of: `dynotune sft` or `dynotune dpo`.", group=_OURS),
]


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


@with_key_flags(*METHODS.values())
def prepare(
    *,
    config: _ConfigFile = None,
    method: _Method = "sft",
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
        resolved: WholeConfig = SFTConfig()  # stores are pruned without any configuration, too
    else:
        resolved = load(config, keys, METHODS[method], to_run=not (print_config or prune))
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
        from dynotune.prepare.command import PrepareOptions, prepare_data, prune_stores

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


@with_key_flags(*METHODS.values())
def plan(
    *,
    config: _ConfigFile = None,
    method: _Method = "sft",
    rate: _Rate = None,
    memory: _Memory = None,
    show_memory: _ShowMemory = False,
    print_config: _PrintConfig = False,
    as_json: _Json = False,
    **keys: Any,
) -> None:
    """`dynotune plan`; its help stands where it is registered."""
    resolved = load(config, keys, METHODS[method], to_run=not print_config)
    if print_config:
        sys.stdout.write(resolved.to_yaml())
        return
    for flag, given in (("--rate", rate), ("--memory", memory)):
        if given is not None and not given > 0:
            raise ConfigError(f"flag {flag}: {given:g} must be above 0.")
    with _console(as_json) as console:
        from dynotune.estimate.command import plan_run

        planned = plan_run(resolved, console, rate, memory, show_memory)
    if as_json:
        sys.stdout.write(json.dumps(planned) + "\n")
