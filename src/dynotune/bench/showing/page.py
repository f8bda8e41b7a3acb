"""A bench as a section of a page: what the terminal shows, whole, with pictures, every table, and where it was measured."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.bench.judging.sentence import name
from dynotune.bench.showing.grids import arms
from dynotune.bench.showing.pictures import bench_pictures
from dynotune.bench.showing.shown import shown
from dynotune.config.secrets import masked, without_secrets
from dynotune.printable import printable
from dynotune.report.settings import without_local_paths
from dynotune.results import phrases
from dynotune.results.comparable import hidden
from dynotune.results.result import Arm, Block, Result
from dynotune.show.grids import Grid, Line, Tone
from dynotune.show.page import Banner, Code, Fold, Heading, Lead, Lines, Part, Section, Table, render

MOST = 400
"""Rows of a table."""

JSON = 20_000
"""Characters of a configuration that are shown."""


def bench_page(result: Result) -> str:
    """The page of one bench, as a whole file."""
    section = bench_section(result)
    return render(f"dynotune bench: {section.title}", [section])


def bench_section(result: Result) -> Section:
    """All of it. No speed stands here that `dynotune.results.comparable` hides, in no picture either."""
    return Section(f"{result.kind}: {printable(result.name, 120)}", tuple(_parts(result)))


def _parts(result: Result) -> Iterator[Part]:
    one = shown(result)
    if one.withdrawn:
        yield Banner(one.withdrawn)
    yield Lead(one.sentence)
    yield Lines((Line(one.operating_point), Line("; ".join(one.conditions), Tone.QUIET)))
    yield Table(one.grid)
    below = [*one.said, *one.expectations, *([one.engagement] if one.engagement else [])]
    below += [Line(text) for text in one.differences] + [Line(f"note: {text}", Tone.DOUBT) for text in one.notes]
    yield Lines((*below, *([Line(one.sample, Tone.QUIET)] if one.sample else ())))
    yield from bench_pictures(result)
    yield Heading("Arms")
    if one.grid.title != "arms":
        yield Table(arms(result))
    yield Table(_more_of_arms(result))
    if of_losses := _of_losses(result):
        yield Lines((Line(of_losses, Tone.QUIET),))
    yield from _settings(result)
    yield Heading("Parity")
    yield from _parity(result)
    yield Heading("Engagement")
    yield from _engaged(result)
    yield from _sample(result)
    yield Heading("Blocks")
    yield from _blocks(result)
    yield Heading("Where and how")
    yield Table(_environment(result))
    yield Code(printable(masked(result.command), 4000))


def _more_of_arms(result: Result) -> Grid:
    shut = hidden(result)
    head = (
        "arm", "label tok/s", "processed tok/s", "documents/s", "examples a step", "steps an epoch", "set-up s",
        "first step s", "compile s", "warm-up steps", "device GiB", "utilisation", "p95", "device s", "final loss",
    )  # fmt: skip
    rows = (_more(arm, arm.name in shut, result.devices_of(arm)) for arm in result.arms[:MOST])
    return Grid("figures of each arm", head, tuple(rows))


def _more(arm: Arm, shut: bool, devices: int) -> tuple[Line, ...]:
    def rate(what: Any) -> str:
        value = arm.per_second(what)
        return "" if shut or value is None else phrases.rate(value / devices)

    warm, memory = arm.warm_up, arm.memory
    read = [block.clocks for block in arm.counted]
    return tuple(
        Line(text)
        for text in (
            name(arm.name),
            rate("label_tokens"),
            rate("processed_tokens"),
            rate("documents"),
            "" if arm.examples_a_step is None else f"{arm.examples_a_step:,}",
            "" if arm.steps_an_epoch is None else f"{arm.steps_an_epoch:,}",
            phrases.seconds(None if warm is None else warm.set_up_seconds),
            phrases.seconds(None if warm is None else warm.first_step_seconds),
            phrases.seconds(None if warm is None else warm.compile_seconds),
            "" if warm is None else f"{warm.steps}" + ("" if warm.stationary else " NOT STATIONARY"),
            phrases.gib(None if memory is None else memory.device),
            phrases.share(_mean([one.utilisation_mean for one in read]), 0),
            phrases.share(_mean([one.utilisation_p95 for one in read]), 0),
            phrases.seconds(arm.gpu_seconds),
            "" if arm.final_loss is None else f"{arm.final_loss:.4f}",
        )
    )


def _of_losses(result: Result) -> str:
    """What the final losses are of, as a sentence: no reader is to take two of the same weights for two outcomes."""
    kinds: dict[str, list[str]] = {}
    for arm in result.arms:
        if arm.final_loss is not None and arm.final_loss_of:
            kinds.setdefault(printable(arm.final_loss_of, 120), []).append(name(arm.name))
    told = "; ".join(text + (f" ({', '.join(arms)})" if len(kinds) > 1 else "") for text, arms in kinds.items())
    if not told:
        return ""
    of_commands = result.kind in ("foreign", "revisions")
    learns = "" if of_commands else " Which arm learns better is told by parity and held-out losses, and not by these."
    return f"Final loss: that of {told}.{learns}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _settings(result: Result) -> Iterator[Part]:
    for arm in result.arms[:MOST]:
        if arm.settings:
            yield Lines((Line(f"{name(arm.name)} differs from the first in: {_json(arm.settings, 1000)}"),))
    inner: list[Part] = []
    for arm in result.arms[:20]:
        said = tuple(Line(printable(text, 400)) for text in arm.said[:40])
        events = tuple(Line(printable(text, 200)) for text in (arm.warm_up.events[:40] if arm.warm_up else ()))
        inner += [Heading(name(arm.name)), Lines((*said, *events)), Code(_json(arm.config, JSON, indent=1))]
    if inner:
        yield Fold("Configurations, and what the runs said", tuple(inner))


def _json(value: Mapping[str, Any], most: int, indent: int | None = None) -> str:
    public = without_local_paths(without_secrets(value))
    text = json.dumps(public, indent=indent, ensure_ascii=False, default=str)
    return "\n".join(printable(line, most) for line in text[:most].split("\n")) + ("..." if len(text) > most else "")


def _parity(result: Result) -> Iterator[Part]:
    if not result.parity:
        yield Lines((Line("Whether the arms make the same updates was not checked.", Tone.DOUBT),))
        return
    rows = []
    for parity in result.parity[:MOST]:
        first = (Line(name(parity.arm)), Line(name(parity.against)), Line(parity.kind))
        bad = Tone.BAD if parity.state == "differs" else Tone.PLAIN
        if not parity.checks:
            why = printable(parity.why_not_checked or parity.first_difference, 200)
            rows.append((*first, Line(parity.state, bad), *(Line(""),) * 4, Line(why)))
        rows += [
            (
                *first,
                Line(parity.state, bad),
                Line(check.gate),
                Line(printable(check.quantity, 60)),
                Line(phrases.small(check.observed)),
                Line(phrases.small(check.bound)),
                Line(("holds" if check.ok else "FAILS") + (f": {printable(check.detail, 160)}" if check.detail else ""),
                     Tone.PLAIN if check.ok else Tone.BAD),
            )
            for check in parity.checks[:50]
        ]  # fmt: skip
    rows += [
        (Line(name(one.arm)), Line(name(one.against)), Line(""), Line("not gated", Tone.DOUBT), *(Line(""),) * 4,
         Line(f"stands for it: {printable(one.gated_by, 200)}"))
        for one in result.comparisons[:MOST]
        if one.gated_by
    ]  # fmt: skip
    head = ("arm", "against", "kind", "state", "gate", "quantity", "observed", "bound", "check")
    yield Table(Grid("checks of parity", head, tuple(rows)))
    held = [
        (Line(name(parity.arm)), Line(name(arm)), Line(", ".join(f"{value:.4f}" for value in values[:20])))
        for parity in result.parity[:MOST]
        for arm, values in parity.held_out.items()
    ]
    if held:
        yield Table(Grid("loss on held-out data, a value a seed", ("of", "arm", "losses"), tuple(held)))


def _engaged(result: Result) -> Iterator[Part]:
    rows = tuple(
        (
            Line(name(arm.name)),
            Line(printable(one.name, 60)),
            Line(one.state, Tone.PLAIN if one.state in ("engaged", "left out", "out") else Tone.BAD),
            Line("" if one.seen is None or one.expected is None else f"{one.seen} of {one.expected}"),
            Line(printable(one.evidence, 200)),
        )
        for arm in result.arms
        for one in arm.engaged
    )[:MOST]
    if not rows:
        yield Lines((Line("No step was traced: which speed-ups ran is not known.", Tone.DOUBT),))
        return
    yield Table(Grid("speed-ups, as a traced step showed them", ("arm", "speed-up", "state", "seen", "evidence"), rows))


def _sample(result: Result) -> Iterator[Part]:
    if result.sample is None:
        return
    one = result.sample
    rows = tuple(
        (Line(printable(at, 20)), Line(f"{mine:,}"), Line(f"{all_of:,}"))
        for at, (mine, all_of) in list(one.lengths.items())[:20]
    )
    yield Heading("What was sampled")
    yield Lines(
        (
            Line(
                f"{one.examples:,} of {one.examples_of_plan:,} examples, {one.real_tokens:,} of"
                f" {one.real_tokens_of_plan:,} real tokens."
            ),
        )
    )
    yield Table(Grid("tokens of an example", ("quantile", "measured", "of the plan"), rows))


def _blocks(result: Result) -> Iterator[Part]:
    shut = hidden(result)
    void = [(arm, block) for arm in result.arms for block in arm.blocks if block.void is not None]
    if void:
        rows = tuple(
            (
                Line(name(arm.name)),
                Line(f"{block.pair}"),
                Line(f"{block.first_step}"),
                Line(printable(block.void or "", 200)),
            )
            for arm, block in void[:MOST]
        )
        yield Table(
            Grid("blocks that do not count, and were measured again", ("arm", "pair", "first step", "why"), rows)
        )
    else:
        yield Lines((Line("No block was voided."),))
    every = [(arm, block) for arm in result.arms for block in arm.blocks]
    told = tuple(_block_row(arm, block, arm.name in shut) for arm, block in every[:MOST])
    head = (
        "arm", "pair", "of noise", "steps", "tokens", "real tokens", "label tokens", "fill", "seconds", "host-bound",
        "clock MHz", "watts", "°C", "throttled", "recompiles", "loss",
    )  # fmt: skip
    more = f", the first {MOST} of {len(every):,}" if len(every) > MOST else ""
    yield Fold(f"All blocks{more}", (Table(Grid("blocks", head, told)),))


def _block_row(arm: Arm, block: Block, shut: bool) -> tuple[Line, ...]:
    clocks, host = block.clocks, None
    if block.device_seconds is not None and block.seconds > 0:
        host = 1 - block.device_seconds / block.seconds
    return tuple(
        Line(text)
        for text in (
            name(arm.name),
            f"{block.pair}",
            "yes" if block.of_noise else "",
            f"{block.steps}",
            f"{block.tokens:,}",
            f"{block.real_tokens:,}",
            f"{block.label_tokens:,}",
            phrases.share(block.real_tokens / block.processed_tokens if block.processed_tokens else None),
            "" if shut else f"{block.seconds:.4g}",
            "" if host is None or host <= 0.02 else phrases.share(host),
            "" if clocks.sm_mhz is None else f"{clocks.sm_mhz:.0f}",
            "" if clocks.power_watts is None else f"{clocks.power_watts:.0f}",
            "" if clocks.celsius is None else f"{clocks.celsius:.0f}",
            printable(", ".join(clocks.throttled), 80),
            f"{block.recompiles}" if block.recompiles else "",
            "" if block.loss is None else f"{block.loss:.4f}",
        )
    )


def _environment(result: Result) -> Grid:
    rows = [
        ("date", result.date),
        ("commit", result.commit or "not known"),
        ("seed", str(result.seed)),
        ("definitions", str(result.definitions)),
        ("where the arms lived", result.tier.value + (f": {result.why_tier}" if result.why_tier else "")),
        ("devices of an arm", _devices(result)),
        ("device seconds", f"{result.gpu_seconds:,.0f}" + _budget(result)),
        ("work", result.work),
        *((f"model: {key}", _plain(value)) for key, value in result.model.items()),
        *((f"machine: {key}", _plain(value)) for key, value in result.machine.items()),
    ]
    shown_rows = tuple((Line(printable(key, 60)), Line(printable(value, 300))) for key, value in rows[:MOST] if value)
    return Grid("where it was measured", ("what", "value"), shown_rows)


def _devices(result: Result) -> str:
    """One number where all arms have the same."""
    of = {name(arm.name): result.devices_of(arm) for arm in result.arms[:MOST]}
    if len({*of.values()}) < 2:
        return str(result.devices)
    return ", ".join(f"{arm} {count}" for arm, count in of.items())


def _budget(result: Result) -> str:
    return "" if result.budget_seconds is None else f" of at most {result.budget_seconds:,.0f}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)
