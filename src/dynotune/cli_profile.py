"""`dynotune profile`: where a step's time goes. Its flags are those of the configuration, and how to look."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from rich.console import Console

from dynotune.cli_keys import load, with_key_flags
from dynotune.command_line import WORDS
from dynotune.config.secrets import without_secret_words
from dynotune.config.whole import METHODS
from dynotune.errors import ConfigError

_WHAT = Group("What is profiled", sort_key=0)
_HOW = Group("How", sort_key=1)


def _flag(name: str, text: str, group: Group = _HOW, **more: Any) -> Parameter:
    return Parameter(name=f"--{name}", help=text, group=group, negative=(), **more)


@with_key_flags(*METHODS.values())
def profile(
    *command: Annotated[str, Parameter(help="Behind `--`: a training script as it is started, unedited.", group=_WHAT)],
    config: Annotated[
        Path | None, _flag("config", "A YAML or JSON file with any of the keys below. Flags win over it.", _WHAT)
    ] = None,
    method: Annotated[Literal["sft", "dpo"], _flag("method", "What the configuration is of.", _WHAT)] = "sft",
    record: Annotated[
        Path | None, _flag("record", "Read a record that an earlier profile kept, and run nothing.", _WHAT)
    ] = None,
    steps: Annotated[
        int, _flag("steps", "Steps that are timed, behind the warm-up and before those that are traced.")
    ] = 20,
    warm_up: Annotated[
        int | None, _flag("warm_up", "Steps before [default: until nothing moves and steps are level].")
    ] = None,
    go_on: Annotated[
        bool, _flag("go_on", "Let the script behind `--` go on to its own end, instead of stopping it.", _WHAT)
    ] = False,
    out: Annotated[Path | None, _flag("out", "Folder of the files [default: a new one in `profiles/`].")] = None,
    memory_snapshot: Annotated[
        bool,
        _flag(
            "memory_snapshot",
            "On a GPU, write a snapshot of the memory of the traced steps for PyTorch's viewer. The file is a pickle, as"
            " that viewer needs it; Dynotune never reads one.",
        ),
    ] = False,
    calibrate: Annotated[
        bool, _flag("calibrate", "Measure anew what this device can do, which is kept otherwise (2 seconds).")
    ] = False,
    as_json: Annotated[bool, _flag("json", "Print the profile as one JSON object on stdout.")] = False,
    **keys: Any,
) -> None:
    """Where the time of a training step goes, what holds it back, and what would change that."""
    from dynotune.profile.command import Options, finish, profile_config, snapshot_of
    from dynotune.profile.foreign import command as foreign
    from dynotune.profile.foreign.protocol import Asked as Watched
    from dynotune.profile.records.record_file import read_record
    from dynotune.profile.showing.keep import as_json as plain
    from dynotune.profile.showing.screen import show
    from dynotune.say import sayer

    given = [name for name, value in {"config": config, **keys}.items() if value is not None]
    if command and "--" not in WORDS.get():
        raise ConfigError(
            f"`{command[0]}`: a script to profile stands behind `--`: `dynotune profile -- python train.py`."
        )
    if (command or record) and given:
        other = "a command behind `--`" if command else "`--record`"
        raise ConfigError(f"`--{given[0]}` and {other} are both given: profile the one or the other.")
    if command and record:
        raise ConfigError("`--record` and a command behind `--` are both given: keep one.")
    if record and memory_snapshot:
        raise ConfigError("`--memory_snapshot` and `--record` are both given: a record holds no memory to look at.")
    if go_on and not command:
        raise ConfigError("`--go_on` is for a script behind `--`, and there is none.")
    named = config.stem if config else foreign.name_of(command) if command else record.stem if record else "run"
    options = Options(named, steps, out, memory_snapshot, calibrate, warm_up)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        console = Console(stderr=as_json)
        say = sayer(console)
        if record is not None:
            try:
                found = read_record(record)
            except OSError as error:
                raise ConfigError(f"{record} cannot be read: {error.strerror}.") from error
        elif command:
            snapshot = snapshot_of(options)
            file = str(snapshot.absolute()) if snapshot else ""
            asked = Watched(steps, warm_up=warm_up, stop=not go_on, snapshot=file)
            found = foreign.profile(foreign.Options(command, asked), say)
        else:
            flags = [word for name, value in keys.items() if value is not None for word in (f"--{name}", *value)]
            resolved = load(config, keys, METHODS[method], to_run=True)
            found = profile_config(resolved, config, without_secret_words(flags), options, console)
        findings, files = finish(found, options, say)
    if as_json:
        sys.stdout.write(json.dumps(plain(found, findings)) + "\n")
    else:
        show(findings, console, files)
