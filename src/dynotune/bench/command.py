"""`dynotune bench`: from what was asked on the command line to a result on the screen and in files."""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from dynotune.bench.asking import asked as asking
from dynotune.bench.asking.arms import Arm, devices_of, in_words
from dynotune.bench.asking.asked import Asked, Change, Half, Needs
from dynotune.bench.asking.how import How
from dynotune.bench.asking.schedule import SECONDS_A_BLOCK, STEPS_A_BLOCK, Rules, unit_of
from dynotune.bench.judging.conclude import conclude
from dynotune.bench.judging.expect import parse
from dynotune.bench.keeping.so_far import SoFar
from dynotune.bench.running.budget import GATE, spent_by
from dynotune.bench.running.cast import on_gpu, thread_settings, tier_for
from dynotune.bench.running.measure import Measured, measure
from dynotune.bench.workers.hand import Hand
from dynotune.config.checking.problems import did_you_mean
from dynotune.config.load import ONE_SPEEDUP
from dynotune.config.reading.flags import Words, from_words
from dynotune.config.whole import WholeConfig
from dynotune.environment import PACKAGES, installed
from dynotune.errors import ConfigError
from dynotune.results.result import Parity, Result, Tier
from dynotune.say import sayer
from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.registry import speedups, switches

TIERS = {"switch": Tier.SWITCH, "resident": Tier.RESIDENT, "fresh": Tier.FRESH}

STEPS_A_FRESH_BLOCK = 20
"""A fresh process has an effect of its own, against which more steps in it do nothing; fewer would not pay for its start."""

HELD_OUT_SECONDS = 300.0
"""For held-out losses of all behavioural arms, where there is no budget, of which they may take half."""


@dataclass(frozen=True, slots=True)
class Options(How):
    """What was asked, as it was typed."""

    config: WholeConfig
    named: str
    """What the first arm is called."""

    versus: tuple[str, WholeConfig] | None = None
    changes: Sequence[str] = ()
    """Of `--set`: `key=value`."""

    ladder: bool = False
    attribute: bool = False
    attribute_only: Half | None = None
    """Half of an attribution."""

    on_top_of: Sequence[str] | None = None
    """Speed-ups that are in the base of a walk through speed-ups; None: the plain path is."""

    sweep: str | None = None
    quick: bool = False
    steps: int | None = None
    tier: Literal["switch", "resident", "fresh"] | None = None
    parity: Literal["gate", "full", "off"] = "gate"
    memory: bool = True


def bench(options: Options, console: Console) -> tuple[Result, Path]:
    """Run it. Returns the result and the folder for its files: `options.out`, or a new one under `benches/`.

    Raises `ConfigError` before anything runs, `ArmFailedError` where the first arm cannot be measured.
    """
    say = sayer(console)
    targets = parse(options.expect) if options.expect else ()
    out = options.out or fresh_folder(options.named, *options.changes, options.sweep or "")
    with tempfile.TemporaryDirectory(prefix="dynotune-bench-") as temporary:
        work = Path(temporary)
        try:
            asked = _asked(options, out, work, say)
            began, commit = time.perf_counter(), commit_here()
            parity, spent = _parity(asked, work, say)

            def result(found: Measured, *notes: str) -> Result:
                unknown = ["Whether the arms make the same updates was not checked (`--parity off`)."]
                said = [*(unknown if asked.parity == "off" else ()), *notes]
                machine = machine_and_packages(found.device)
                return conclude(found, parity, targets, machine=machine, commit=commit, notes=said)

            with SoFar(result, out, say) as so_far:
                found = measure(asked, work, say, spent, so_far)
            say(f"measured in {time.perf_counter() - began:.0f} s")
        finally:
            keep_logs(work, out)
    return result(found), out


def keep_logs(work: Path, out: Path) -> None:
    """What the processes of the arms printed, into `logs/` of the result's folder: also where the bench failed."""
    logs = list(work.rglob("*.log"))
    if logs:
        (out / "logs").mkdir(parents=True, exist_ok=True)
    for log in logs:
        name = "-".join(log.relative_to(work).parts)
        shutil.copyfile(log, out / "logs" / name)


def machine_and_packages(device: Mapping[str, Any]) -> dict[str, Any]:
    """The device's machine, with versions of packages."""
    return {**device["machine"], "packages": installed(PACKAGES)}


def commit_here() -> str | None:
    """Of the project in the current folder, with `-changed` where files differ from it; None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None
    told = [
        subprocess.run([git, *words], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
        for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    if any(one.returncode for one in told):
        return None
    return told[0].stdout.strip() + ("-changed" if told[1].stdout.strip() else "")


def fresh_folder(*named: str) -> Path:
    """`benches/DATE-NAME`, which is not there yet."""
    words = re.sub(r"[^a-z0-9]+", "-", "-".join(named).lower())
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{words.strip('-')[:40].strip('-') or 'bench'}"
    return Path("benches") / name


def _asked(options: Options, out: Path, work: Path, say: Callable[[str], None]) -> Asked:
    """The arms and pairings of what was typed. Without any change, the speed-ups that the run takes are the changes."""
    first = Arm(options.named, options.config)
    kind: asking.Kind = "ab"
    attributes = options.attribute or options.attribute_only is not None
    walks = options.ladder or attributes
    _refuse_halves_and_bases(options, walks)
    if options.steps is not None and options.steps < 1:
        raise ConfigError(f"A block of {options.steps} steps measures nothing: give `--steps` 1 or more.")
    _rules(options, fresh=False)  # refused is refused in every tier, before a process looks for speed-ups
    if sum((bool(options.sweep), options.versus is not None, walks)) > 1:
        raise ConfigError(
            "Give one of `--vs`, `--sweep`, `--attribute_only` and `--ladder`: each is a bench of its own."
            " Only `--attribute` goes with `--ladder`."
        )
    if options.sweep:
        if options.changes:
            raise ConfigError(
                "`--sweep` and `--set` are both given: write what is the same in all arms into the configuration."
            )
        key, values = _sweep_of(options.config, options.sweep)
        kind, (arms, pairings) = "sweep", asking.sweep(options.config, key, values)
    elif walks:
        changes: dict[str, Change] = {word: changes_of(options.config, [word]) for word in options.changes}
        needs: Needs = {}
        if not changes:
            first, changes, needs = _of_speedups(first, [*dict.fromkeys(options.on_top_of or ())], work, say)
        kind = "attribute" if attributes else "ladder"
        if not attributes:
            arms, pairings = asking.ladder(first, changes)
        elif options.ladder:
            arms, pairings = asking.attributed_on_a_ladder(first, changes, needs)
        else:
            arms, pairings = asking.attributed(first, changes, needs, options.attribute_only)
    elif options.versus is not None:
        name, config = options.versus
        arms, pairings = asking.two(first, Arm(name, asking.changed(config, changes_of(config, options.changes))))
    elif options.changes:
        change = changes_of(options.config, options.changes)
        arms, pairings = asking.two(first, Arm(in_words(change), asking.changed(options.config, change)))
    else:
        raise ConfigError(
            "nothing to compare: give `--vs b.yaml`, `--set key=value`, `--sweep key=v1,v2`, `--ladder` or `--attribute`."
        )
    if arms[0].config.method is not arms[-1].config.method:
        raise ConfigError("SFT and DPO cannot be compared: an arm of each has other examples and another objective.")
    tier = TIERS[options.tier] if options.tier else None
    gpu = on_gpu(arms[0])
    fresh = (tier or tier_for(arms, gpu)[0]) is Tier.FRESH
    return Asked(
        kind=kind,
        arms=arms,
        pairings=pairings,
        rules=_rules(options, fresh, gpu),
        steps_a_block=options.steps or (STEPS_A_FRESH_BLOCK if fresh else STEPS_A_BLOCK),
        seed=options.seed,
        out=out,
        command=options.command,
        tier=tier,
        parity=options.parity,
        memory=options.memory,
        seconds_a_block=0.0 if options.steps else SECONDS_A_BLOCK,
    )


def _refuse_halves_and_bases(options: Options, walks: bool) -> None:
    """Raises `ConfigError` where half of an attribution, or what lies beneath one, cannot be what is meant."""
    if options.attribute_only and options.ladder:
        raise ConfigError("`--attribute_only` is half of an attribution and has arms of its own: leave `--ladder` out.")
    if options.attribute_only and options.attribute:
        raise ConfigError("`--attribute` is both halves, `--attribute_only` is one: leave one of them out.")
    if options.on_top_of is None:
        return
    if not options.on_top_of:
        raise ConfigError("`--on_top_of` names no speed-up: write `--on_top_of packed_execution`.")
    if options.changes or not walks:
        raise ConfigError(
            "`--on_top_of` names what is in the base where speed-ups are the changes: it goes with `--ladder` or"
            " `--attribute`, without `--set`."
        )


def _rules(options: Options, fresh: bool, gpu: bool = True) -> Rules:
    """Of what was typed. fresh: every block has a process of its own, whose start costs more than its steps. gpu: arms run
    on one."""
    few = 6
    pairs = min(few, options.most_pairs or few) if options.pairs is None else options.pairs
    most = max(pairs, few if options.quick or fresh else 16) if options.most_pairs is None else options.most_pairs
    return Rules(
        pairs=pairs, most_pairs=most, resolution=options.resolution, budget_seconds=options.budget, unit=unit_of(gpu)
    )


def changes_of(config: WholeConfig, words: Sequence[str]) -> dict[str, Any]:
    """`key=value` as keys and values, read as flags are. Raises `ConfigError`."""
    found: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        if not value:
            raise ConfigError(f"`--set {word}`: write `key=value`.")
        found[key] = _value(config, key, value, f"--set {word}")
    return found


def _value(config: WholeConfig, key: str, value: str, flag: str) -> Any:
    if key.startswith(ONE_SPEEDUP):
        name = key.removeprefix(ONE_SPEEDUP)
        if name not in speedups():
            hint = did_you_mean(name, speedups())
            raise ConfigError(f"`{flag}`: there is no speed-up `{name}`.{hint} `dynotune plan` lists them.")
        if value not in ("auto", "on", "off"):
            raise ConfigError(f"`{flag}`: a speed-up is `auto`, `on` or `off`.")
        return value
    if key not in type(config).model_fields:
        hint, listing = did_you_mean(key, type(config).model_fields), f"`dynotune {config.method.command} --help`"
        raise ConfigError(f"`{flag}`: there is no key `{key}`.{hint} {listing} lists them.")
    try:
        return from_words(type(config), key, Words(value.split()))
    except ValueError as error:
        raise ConfigError(f"`{flag}`: {error}.") from error


def _sweep_of(config: WholeConfig, word: str) -> tuple[str, list[Any]]:
    key, _, values = word.partition("=")
    if not values:
        raise ConfigError(f"`--sweep {word}`: write `key=v1,v2`.")
    return key, [_value(config, key, value, f"--sweep {word}") for value in values.split(",") if value]


def _of_speedups(
    first: Arm, beneath: Sequence[str], work: Path, say: Callable[[str], None]
) -> tuple[Arm, dict[str, Change], dict[str, list[str]]]:
    """The plain path, with those speed-ups that are asked for `beneath`, as the baseline; as changes the others that the
    configuration takes, in an order in which each can be: behind those that it needs."""
    for name in beneath:
        if name not in speedups():
            raise ConfigError(f"`--on_top_of`: there is no speed-up `{name}`.{did_you_mean(name, speedups())}")
        if why := speedups()[name].why_no_switch(first.config):
            raise ConfigError(f"`--on_top_of {name}`: {why}, as every arm does. Leave it out.")
    say("finding the speed-ups that this configuration takes")
    with Hand(first, work, 999, thread_settings()) as hand:
        standing = [name for name in hand.stand(first)["installed"] if name in switches()]
    if missing := [name for name in beneath if name not in standing]:
        raise ConfigError(f"`--on_top_of {missing[0]}`: this configuration does not take it here.")
    for name in beneath:
        if lacking := [other for other in _needs(name, standing) if other not in beneath]:
            raise ConfigError(f"`--on_top_of {name}`: it needs {lacking[0]}, too. Name both.")
    needs = {name: [other for other in _needs(name, standing) if other not in beneath] for name in standing}
    ordered = in_an_order([name for name in standing if name not in beneath], needs)
    every = dict.fromkeys(switches(), "off")
    plain = first.config.replace(
        speedups={**first.config.speedups, **every, **{name: _word(first.config, name) for name in beneath}}
    )
    changes: dict[str, Change] = {name: {f"{ONE_SPEEDUP}{name}": _word(first.config, name)} for name in ordered}
    if not changes:
        none = "no other speed-up" if beneath else "no speed-up"
        raise ConfigError(f"This configuration takes {none} here: there is nothing to attribute.")
    return Arm(" + ".join(["plain path", *beneath]), plain), changes, needs


def _word(config: WholeConfig, name: str) -> str:
    """With which a speed-up that stands is put in. What would be left out by itself where its slot is empty is there because
    somebody wants it, and stays so."""
    return "on" if speedups()[name].worth_beside and config.speedups.get(name) == "on" else "auto"


def in_an_order(names: Sequence[str], needs: Needs) -> list[str]:
    """Names of speed-ups as they came, each behind those that it needs. What computes attention goes first, with its needs:
    a layout that is made for a kernel costs time without one (shared prompts on an H200: 0.73 s a step, not 0.43)."""
    attention = [name for name in names if isinstance(speedups()[name], AttentionBackend)]
    first = {*attention, *(other for name in attention for other in needs.get(name, ()))}
    waiting = sorted(names, key=lambda name: name not in first)
    ordered: list[str] = []
    while left := [name for name in waiting if name not in ordered]:
        ordered.append(next(name for name in left if set(needs.get(name, ())) <= set(ordered)))
    return ordered


def _needs(name: str, standing: Sequence[str]) -> list[str]:
    """Of those that stand, what one needs, and what that needs, in the order in which they stand.

    What is left out by itself where a slot is empty needs the one that stands there: alone it would not be measured, and
    without that one it would be left out, too, under the other's name.
    """
    found, left = set[str](), _next_needs(name, standing)
    while left:
        other = left.pop()
        if other not in found:
            found.add(other)
            left += _next_needs(other, standing)
    return [other for other in standing if other in found]


def _next_needs(name: str, standing: Sequence[str]) -> list[str]:
    one = speedups()[name]
    beside = [other for other in standing if one.worth_beside and speedups()[other].slot == one.worth_beside]
    return [*one.requires, *beside]


def _parity(asked: Asked, work: Path, say: Callable[[str], None]) -> tuple[list[Parity], Mapping[str, float]]:
    """Before anything is timed: what fails is known before its speed is. Returns seconds by arm too."""
    found: list[Parity] = []
    spent: dict[str, float] = {}
    if asked.parity == "off":
        return found, spent
    from dynotune.bench.parity.gate import check

    seconds = HELD_OUT_SECONDS if asked.rules.budget_seconds is None else asked.rules.budget_seconds / 2
    # A change that is left out of everything is the one that was looked at alone, where it was.
    alone = {one.label for one in asked.pairings if one.role == "alone"}
    pairs = dict.fromkeys(
        (one.arm, one.against) for one in asked.pairings if one.role != "last" or one.label not in alone
    )
    for number, (name, against) in enumerate(pairs):
        held = sum(seconds * devices_of(asked.arm(arm)) for arm, seconds in spent.items())
        began = time.perf_counter()
        folder = work / f"parity-{number}"
        folder.mkdir()
        one = check(
            asked.arm(against),
            asked.arm(name),
            folder,
            full=asked.parity == "full",
            allowance=seconds / len(pairs),
            spent=spent_by(asked.rules, {GATE: held}, f"{name} was checked"),
            say=say,
        )
        found.append(one)
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
        # A rung of a ladder is compared with the one below it and with the first: two lines that must not look like one.
        several = len([arm for arm, _ in pairs if arm == name]) > 1
        against_whom = f" against {against}" if several else ""
        why = one.first_difference or (one.why_not_checked if one.state == "not checked" else "")
        said = f": {why}" if why else ""
        say(f"{name}{against_whom}: updates {one.state}{said}")
    return found, spent
