"""`dynotune bench -- A :: B` and `--rev A --rev B -- COMMAND`: which flags go with commands that are not ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from dynotune.command_line import WORDS
from dynotune.errors import ConfigError

EXAMPLE = "`dynotune bench -- python a.py :: python b.py`"


def require_only_commands(flags: Mapping[str, Any], revisions: Sequence[str]) -> None:
    """flags: those that concern configurations, None or False where they were not given. Raises `ConfigError`."""
    given = [name for name, value in flags.items() if value is not None and value is not False]
    if given:
        mine = "`--rev`" if revisions else "commands behind `--`"
        raise ConfigError(
            f"`--{given[0]}` and {mine} are both given: the one is of Dynotune's own configurations, the other of whole"
            " commands. Keep one."
        )


def behind_the_dashes(words: Sequence[str], *, revisions: Sequence[str], setup: bool) -> tuple[str, ...]:
    """The words of commands. Raises `ConfigError` where they do not stand behind `--`, or there are none."""
    if words and "--" not in WORDS.get():
        raise ConfigError(
            f"`{words[0]}` is no command of `dynotune bench`, and commands to measure stand behind `--`: {EXAMPLE}."
        )
    if not words:
        what = "--rev" if revisions else "--setup" if setup else "--other_work"
        raise ConfigError(f"`{what}` needs a command behind `--`: `dynotune bench --rev A --rev B -- python train.py`.")
    if setup and not revisions:
        raise ConfigError("`--setup` prepares the commits of `--rev`: give `--rev` twice, or leave it out.")
    return tuple(words)
