"""`dynotune bench`, the command that measures. Its flags are those of the configuration, and how to measure."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from rich.console import Console

from dynotune.bench.running.launched import on_as_many, taken_over
from dynotune.cli_commands import behind_the_dashes, require_only_commands
from dynotune.cli_keys import load, with_key_flags
from dynotune.command_line import WORDS
from dynotune.config.secrets import masked, without_secret_words
from dynotune.config.whole import METHODS, WholeConfig
from dynotune.errors import ConfigError
from dynotune.results.result import Result

NOT_MET = 3
"""Exit code where an expectation of `--expect` is not met, or could not be judged, and where no arm is left to compare or
the budget was spent before two pairs count: what was asked has no answer."""

_COMPARE = Group("What is compared", sort_key=0)
_HOW = Group("How it is measured", sort_key=1)


def _flag(name: str, text: str, group: Group = _HOW, **more: Any) -> Parameter:
    return Parameter(name=f"--{name}", help=text, group=group, negative=(), **more)


@with_key_flags(*METHODS.values())
def measure(
    *commands: Annotated[
        str,
        Parameter(
            help="Behind `--`: commands that report their tokens and seconds, with `::` between them; with `--rev` one.",
            group=_COMPARE,
        ),
    ],
    config: Annotated[
        Path | None, _flag("config", "The baseline: a YAML or JSON file. The keys below win over it.", _COMPARE)
    ] = None,
    vs: Annotated[Path | None, _flag("vs", "Another configuration, measured against the baseline.", _COMPARE)] = None,
    changes: Annotated[
        list[str] | None,
        _flag(
            "set",
            "A change, `key=value` or `speedups.NAME=off`; may be given more than once. Together they are the other arm;"
            " with `--attribute` or `--ladder` each is a change of its own.",
            _COMPARE,
            consume_multiple=True,
        ),
    ] = None,
    attribute: Annotated[
        bool,
        _flag(
            "attribute",
            "Base, everything, each change alone and each left out. Without `--set`: the speed-ups that the run takes.",
            _COMPARE,
        ),
    ] = False,
    attribute_only: Annotated[
        Literal["alone", "last"] | None,
        _flag(
            "attribute_only",
            "Half of `--attribute`, where both do not fit into one budget: each change alone, beside base and everything; or"
            " each left out of everything.",
            _COMPARE,
        ),
    ] = None,
    ladder: Annotated[
        bool,
        _flag(
            "ladder",
            "The base, and each change added to those before it. Without `--set`: as above. With `--attribute`: both in one"
            " bench.",
            _COMPARE,
        ),
    ] = False,
    on_top_of: Annotated[
        list[str] | None,
        _flag(
            "on_top_of",
            "Speed-ups that a ladder or an attribution has in its base already: asked is what the others add to these.",
            _COMPARE,
            consume_multiple=True,
        ),
    ] = None,
    sweep: Annotated[
        str | None, _flag("sweep", "One arm a value of a key: `micro_batch_tokens=2048,4096,8192`.", _COMPARE)
    ] = None,
    rev: Annotated[
        list[str] | None,
        _flag("rev", "A commit of this project; given twice, with the command behind `--`.", _COMPARE),
    ] = None,
    setup: Annotated[
        str | None, _flag("setup", "With `--rev`: run once at each commit, such as 'pip install -e .'.", _COMPARE)
    ] = None,
    other_work: Annotated[
        bool, _flag("other_work", "Commands may count other numbers of tokens: that is meant, and noted.", _COMPARE)
    ] = False,
    method: Annotated[Literal["sft", "dpo"], _flag("method", "What the configurations are of.", _COMPARE)] = "sft",
    quick: Annotated[bool, _flag("quick", "At most 6 pairs.")] = False,
    pairs: Annotated[int | None, _flag("pairs", "Pairs before it may stop for precision [default: 6].")] = None,
    most_pairs: Annotated[int | None, _flag("most_pairs", "Pairs at most [default: 16].")] = None,
    steps: Annotated[
        int | None,
        _flag(
            "steps",
            "Steps a block [default: 5, in fresh processes 20, and more where these take less than half a second]. Of"
            " commands: so many of their steps are counted from outside, behind eleven of"
            " warm-up, then they are stopped; their reports are not needed.",
        ),
    ] = None,
    resolution: Annotated[
        str, _flag("resolution", "Half the width of the interval at which it stops before the most pairs.")
    ] = "0.5%",
    budget: Annotated[
        float | None,
        _flag(
            "budget",
            "GPU seconds, behind which nothing further begins: no gate, probe of memory, warm-up or pair. What has begun is"
            " ended, and pairs of an arm against itself that are owed may take 5 % more."
            " Exit code 3 where they are spent before two pairs count.",
        ),
    ] = None,
    bench_seed: Annotated[int, _flag("bench_seed", "Of the order of arms.")] = 0,
    tier: Annotated[
        Literal["switch", "resident", "fresh"] | None,
        _flag("tier", "Where arms live: one process, one each, a new one a block [default: as what differs allows]."),
    ] = None,
    parity: Annotated[
        Literal["gate", "full", "off"],
        _flag(
            "parity", "`full` adds trajectories, and seeds of behavioural arms; `off` shows speeds of unknown updates."
        ),
    ] = "gate",
    no_memory: Annotated[
        bool, _flag("no_memory", "Do not measure peak memory, which takes a fresh process an arm.")
    ] = False,
    expect: Annotated[
        str | None,
        _flag("expect", "Targets: 'speed>=1.2, peak<=1.05'. Exit code 3 where one is not met, or no other arm ran."),
    ] = None,
    label: Annotated[
        str, _flag("label", "A few words by which `dynotune bench list` names the result [default: what was measured].")
    ] = "",
    out: Annotated[
        Path | None, _flag("out", "Folder of the result's files [default: a new one in `benches/`].")
    ] = None,
    as_json: Annotated[bool, _flag("json", "Print the result as one JSON object on stdout.")] = False,
    **keys: Any,
) -> int:
    """Measure one configuration against another, in pairs of blocks on the same documents; speeds are shown only where the
    updates stay the same."""
    console = Console(stderr=as_json)
    world = taken_over(os.environ)
    if world is None:
        return 0
    how: dict[str, Any] = {
        "pairs": pairs, "most_pairs": most_pairs, "resolution": _share(resolution), "budget": budget, "seed": bench_seed,
        "expect": expect, "out": out, "command": _command(),
    }  # fmt: skip
    if commands or rev or setup is not None or other_work:
        of_configurations = {
            "config": config, "vs": vs, "set": changes, "attribute": attribute, "attribute_only": attribute_only,
            "on_top_of": on_top_of, "ladder": ladder, "sweep": sweep, "method": method != "sft", "tier": tier,
            "parity": parity != "gate", "no_memory": no_memory, **keys,
        }  # fmt: skip
        revisions = tuple(rev or ())
        require_only_commands(of_configurations, revisions)
        words = behind_the_dashes(commands, revisions=revisions, setup=setup is not None)
        from dynotune.bench.foreign import command as foreign

        asked = foreign.Options(words, revisions, setup, other_work, steps, **how)
        return _finished(*foreign.bench(asked, console), label, console, as_json)
    from dynotune.bench.command import Options, bench

    into = METHODS[method]
    first = on_as_many(load(config, keys, into, to_run=True), world)
    options = Options(
        config=first,
        named=config.stem if config else "base",
        versus=_other(vs, keys, into, config, world) if vs else None,
        changes=tuple(changes or ()),
        ladder=ladder,
        attribute=attribute,
        attribute_only=attribute_only,
        on_top_of=on_top_of,
        sweep=sweep,
        quick=quick,
        steps=steps,
        tier=tier,
        parity=parity,
        memory=not no_memory,
        **how,
    )
    return _finished(*bench(options, console), label, console, as_json)


def _command() -> str:
    """As it was typed, without secrets: it is kept, and shown to others. Of flags that hold one, all words are hidden."""
    return masked(shlex.join(["dynotune", *without_secret_words(WORDS.get())]))


def _finished(result: Result, folder: Path, label: str, console: Console, as_json: bool) -> int:
    """Keep and show a result. Returns the exit code."""
    from dynotune.bench.keep import keep

    result, files = keep(result.model_copy(update={"label": label}), folder)
    if as_json:
        sys.stdout.write(result.model_dump_json() + "\n")
    else:
        from dynotune.bench.showing.terminal import show

        show(result, console, files)
    return exit_code(result)


def exit_code(result: Result) -> int:
    """Of a bench that ended in order. Of a sweep, memory that runs out is an answer; a budget that does is none."""
    others = result.arms[1:]
    nothing = result.kind != "sweep" and bool(others) and all(arm.failed is not None for arm in others)
    return NOT_MET if result.unfinished or nothing or not all(one.met for one in result.expectations) else 0


def _other(
    vs: Path, keys: dict[str, list[str] | None], into: type[WholeConfig], first: Path | None, world: int
) -> tuple[str, WholeConfig]:
    """The other arm: its file, under the same flags and for as many GPUs."""
    if first is None:
        raise ConfigError("`--vs` needs a baseline to be measured against: give `--config FILE`.")
    resolved = on_as_many(load(vs, keys, into, to_run=True), world)
    name = vs.stem if vs.stem != first.stem else str(vs)
    return name, resolved


def _share(text: str) -> float:
    """`0.5%` or 0.005."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ConfigError(f"flag --resolution: {text} is no share: write `0.5%`.") from None
