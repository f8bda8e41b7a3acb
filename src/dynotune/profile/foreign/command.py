"""`dynotune profile -- COMMAND`: from words to a record."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dynotune.errors import ConfigError
from dynotune.profile.foreign.as_record import cost_of_watching, record_of
from dynotune.profile.foreign.outcome import notes_of, why_nothing
from dynotune.profile.foreign.protocol import Asked, events, observed, write_options
from dynotune.profile.foreign.run import run
from dynotune.profile.records.record import Record

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked, as it was typed."""

    words: Sequence[str]
    """Behind `--`."""

    asked: Asked = field(default_factory=Asked)
    quiet: bool = False
    """Whether what the command prints is kept to itself."""


def name_of(words: Sequence[str]) -> str:
    """Of a command, for a folder: its script's, or its module's behind `-m`, or the program's."""
    scripts = [Path(word).stem for word in words if word.endswith((".py", ".sh"))]
    modules = [after for word, after in pairwise(words) if word == "-m"]
    return next(iter([*scripts, *modules]), Path(words[0]).stem)


def profile(options: Options, say: Say) -> Record:
    """Run the command, and make a record of what its steps did.

    Raises `ConfigError` where it cannot be run or nothing is asked for, `NothingSeenError` where no step was timed.
    """
    if not options.words:
        raise ConfigError("give a command behind `--`: `dynotune profile -- python train.py`.")
    if options.asked.steps < 1 or options.asked.traced < 0 or (options.asked.warm_up or 1) < 1:
        raise ConfigError("`--steps` and `--warm_up` are at least 1.")
    with tempfile.TemporaryDirectory(prefix="dynotune-profile-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        write_options(folder, options.asked)
        # To our own standard error: standard output is the result's.
        show = None if options.quiet else sys.stderr.buffer
        ran = run(options.words, folder, show, say)
        told, found = events(folder), observed(folder)
    seen = [one for one in found if one.get("timed") or one.get("seconds")]
    if not seen:
        raise why_nothing(options.words, ran, told)
    cost = cost_of_watching(seen[0])
    if cost is not None:
        say(f"watching took {1e6 * cost[0]:,.0f} microseconds of the host a step, {cost[1]:.2%} of it")
    notes = notes_of(ran, told, options.asked.stop, str(seen[0].get("foreign", seen[0]).get("ended")))
    return record_of(options.words, seen, notes)
