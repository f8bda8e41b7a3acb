"""A run as a section of a page, read from the files of its folder: what it learned, how fast, with what, from which data.

What a folder lacks is left out and said; a file that is damaged is an error that names it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynotune.config.reading.files import read_file
from dynotune.config.secrets import without_secrets
from dynotune.errors import ConfigError, DataError
from dynotune.printable import printable
from dynotune.report.curves import finite, read_curves
from dynotune.report.meter_part import peaks, pictures, rows_of, thinned, wall_time, warnings
from dynotune.report.model_card import public_name
from dynotune.report.settings import without_local_paths
from dynotune.report.speed import SHARES, percent, speed_sentence
from dynotune.report.svg import svg_loss_curve
from dynotune.show.grids import Grid, Line, Tone
from dynotune.show.page import Banner, Code, Fold, Heading, Lead, Lines, Part, Picture, Section, Table, render
from dynotune.speedups.record import Record
from dynotune.speedups.table import State
from dynotune.speedups.whole_step import Presence

NAME = "report.html"

LARGEST = 1 << 28
"""Bytes of a file that is read."""

MOST = 200
"""Rows of a table."""

SETTINGS = 20_000
"""Characters of a configuration that are shown."""

FILES = (
    "config.yaml",
    "environment.json",
    "plan.json",
    "ledger.json",
    "engagement.json",
    "metrics.jsonl",
    "summary.json",
)

_LEDGER = {
    "rows_read": "rows read",
    "rows_used": "rows used",
    "tokens_read": "tokens read",
    "tokens_used": "tokens used",
    "label_tokens": "of them with loss",
    "tokens_truncated": "tokens truncated",
    "tokens_skipped": "tokens in skipped rows",
}


def is_run(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in ("plan.json", "metrics.jsonl", "summary.json"))


def write_run_report(run: Path) -> str:
    """The page of one run, as text. Raises `DataError` for a damaged file."""
    return render("dynotune report", [run_section(run)])


def run_section(run: Path) -> Section:
    """Raises `DataError` for a damaged or huge file."""
    return Section(f"run: {printable(run.resolve().name, 120)}", tuple(_parts(run)))


def _parts(run: Path) -> Iterator[Part]:
    missing = [name for name in FILES if not (run / name).is_file()]
    summary = read_object(run / "summary.json")
    if summary:
        yield from _results(summary)
    if missing:
        yield Lines((Line(f"The folder has no {', '.join(missing)}.", Tone.DOUBT),))
    yield from warnings(run / "warnings.jsonl")
    yield from _curves(run / "metrics.jsonl")
    yield from wall_time(summary)
    yield from _engagement(run / "engagement.json")
    yield from _ledger(read_object(run / "ledger.json"))
    yield from _memory(run)
    plan, environment = read_object(run / "plan.json"), read_object(run / "environment.json")
    if plan:
        yield Fold("Plan of the steps", (_pairs("the plan of the steps", plan),))
    if environment:
        yield Heading("Where")
        execution = environment.pop("execution", [])
        if isinstance(execution, list):
            yield Lines(tuple(Line(printable(str(line), 400)) for line in execution[:MOST]))
        yield Fold("Machine and packages", (_pairs("the machine", environment),))
    if (run / "config.yaml").is_file():
        yield Fold("Settings", (Code(_settings(run / "config.yaml")),))


def _results(summary: Mapping[str, Any]) -> Iterator[Part]:
    interrupted = summary.get("interrupted")
    if isinstance(interrupted, Mapping):
        where = f"{interrupted.get('step')} of {interrupted.get('of')}"
        yield Banner(printable(f"ended before its last step, after {where}: {interrupted.get('why')}", 300))
    steps, tokens, seconds = (finite(summary.get(key)) for key in ("steps", "num_tokens", "train_seconds"))
    tokens = finite(summary.get("real_tokens")) if tokens is None else tokens  # of a run before both were told
    if None not in (steps, tokens, seconds):
        loss = finite(summary.get("train_loss"))
        ends = "" if loss is None else f"; mean training loss {loss:.4f}"
        yield Lead(f"{steps:,.0f} steps, {tokens:,.0f} tokens in {seconds:,.1f} s{ends}")
    yield Lines((Line(_speed(summary)),))
    rows = tuple(
        (Line(printable(_spelt(key), 60)), Line(_figure(key, value)))
        for key, value in list(summary.items())[:MOST]
        if value not in (None, [], {}) and not isinstance(value, Mapping)
    )
    yield Fold("All figures of the run", (Table(Grid("figures of the whole run", ("figure", "value"), rows)),))


def _speed(summary: Mapping[str, Any]) -> str:
    try:
        return printable(speed_sentence(summary), 600)
    except (KeyError, TypeError, ValueError):  # the folder may be somebody else's, or of another version
        return "speed: the figures of summary.json are not those of this version"


def _curves(metrics: Path) -> Iterator[Part]:
    if not metrics.is_file():
        return
    _bounded(metrics)
    curves = [thinned(curve) for curve in read_curves(metrics)][:6]
    if curves:
        yield Heading("Loss")
        yield Picture(svg_loss_curve(curves, "Loss over steps", on_page=True), "Training loss of each row of metrics.jsonl"
                      " (line), loss on held-out data (marks).")  # fmt: skip
    yield from pictures(rows_of(metrics))


def _engagement(path: Path) -> Iterator[Part]:
    if not path.is_file():
        return
    try:
        record = Record.read(path)
    except ConfigError as error:
        raise DataError(str(error)) from error
    tones = {State.ENGAGED: Tone.GOOD, State.LEFT_OUT: Tone.QUIET, State.UNKNOWN: Tone.DOUBT, State.PARTIAL: Tone.DOUBT}
    shown: list[tuple[Line, ...]] = []
    others: list[tuple[Line, ...]] = []
    for row in record.rows[:MOST]:
        cells = (
            Line(printable(row.name, 60)),
            Line(str(row.kind)),
            Line(printable(row.asked, 20)),
            Line(row.count, tones.get(row.state, Tone.BAD)),
            Line("; ".join(row.details)[:600]),
            Line(printable(row.gain, 80)),
        )
        (others if row.state is State.LEFT_OUT and row.expected else shown).append(cells)
    seen = {Presence.ABSENT: Tone.GOOD, Presence.FOUND: Tone.BAD, Presence.ALLOWED: Tone.QUIET}
    for one in record.unwanted:
        state = Line(one.state, seen.get(one.presence, Tone.DOUBT))
        cells = (Line(printable(one.what, 60)), Line(""), Line("absent"), state, Line(one.evidence[:600]), Line(""))
        shown.append(cells)
    yield Heading("Speed-ups")
    head = ("speed-up", "kind", "asked", "engaged", "evidence", "effect here")
    yield Table(
        Grid(f"as step {record.step} showed them, on {printable(str(record.machine), 200)}", head, tuple(shown))
    )
    if others:
        yield Fold("Not taken, for plain reasons", (Table(Grid("not taken", head, tuple(others))),))
    yield from _kernels(record)


def _kernels(record: Record) -> Iterator[Part]:
    rows = tuple(
        (
            Line(printable(str(one["name"]), 120)),
            Line(printable(str(one.get("phase", "")), 20)),
            *(
                Line(_figure(name, one.get(key)))
                for key, name in (("count", ""), ("microseconds", ""), ("share", "fill"))
            ),
        )
        for one in record.kernels[:20]
    )
    if rows:
        what = "kernels" if record.has_device_events else "operators, which contain one another"
        head = ("name", "phase", "count", "microseconds", "share")
        yield Fold(f"What took most of that step's time: {what}", (Table(Grid("by time", head, rows)),))


def _ledger(ledger: Mapping[str, Any]) -> Iterator[Part]:
    if not ledger:
        return
    sources = ledger.get("sources")
    named = [(public_name(str(key)), value) for key, value in sources.items()] if isinstance(sources, Mapping) else []
    rows = [
        (Line(printable(key, 120)), *(Line(_figure(name, counts.get(name))) for name in _LEDGER))
        for key, counts in [*named[:MOST], ("all", ledger)]
        if isinstance(counts, Mapping)
    ]
    yield Heading("Data")
    yield Table(Grid("read = used + skipped; every token is counted", ("source", *_LEDGER.values()), tuple(rows)))
    for title, key in (("Skipped rows, by reason", "skipped"), ("Noticed in rows that train", "notices")):
        counted = ledger.get(key)
        if isinstance(counted, Mapping) and counted:
            text = ", ".join(f"{name} {_figure('', count)}" for name, count in list(counted.items())[:40])
            yield Lines((Line(printable(f"{title}: {text}.", 1000)),))


def _memory(run: Path) -> Iterator[Part]:
    summary, environment = read_object(run / "summary.json"), read_object(run / "environment.json")
    rows = []
    peak = finite(summary.get("peak_memory_gib"))
    if peak is not None:
        rows.append((Line("most that PyTorch held allocated, GiB"), Line(f"{peak:.2f}")))
    gpus = environment.get("gpus")
    for gpu in gpus[:16] if isinstance(gpus, list) else []:
        size = finite(gpu.get("memory")) if isinstance(gpu, Mapping) else None
        if size is not None:
            rows.append((Line(f"{printable(str(gpu.get('name')), 60)}, GiB"), Line(f"{size / (1 << 30):.2f}")))
    lost = summary.get("out_of_memory")
    if isinstance(lost, list) and lost:
        rows.append((Line("steps that ran out of memory and were done in smaller parts"), Line(f"{len(lost)}")))
    if peak is not None or lost:
        yield Heading("Memory")
        yield Table(Grid("memory of a device", ("what", "value"), tuple(rows)))
        yield from peaks(summary)


def _pairs(title: str, values: Mapping[str, Any]) -> Table:
    rows = tuple((Line(printable(key, 80)), Line(printable(value, 300))) for key, value in list(_flat(values))[:MOST])
    return Table(Grid(title, ("what", "value"), rows))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    public = without_local_paths(values)
    for key, value in public.items():
        named = f"{above}{_spelt(str(key))}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{named}: ")
        elif value not in (None, [], ""):
            yield named, _figure("", value)


def _settings(path: Path) -> str:
    """Bounded as every configuration is, without secrets and local paths."""
    import yaml

    public = without_local_paths(without_secrets(read_file(path).values))
    text = yaml.safe_dump(public, sort_keys=False, allow_unicode=True)
    return "\n".join(printable(line, 400) for line in text[:SETTINGS].split("\n"))


def _spelt(name: str) -> str:
    return name.replace("_", " ").replace("mfu", "MFU").replace("hfu", "HFU")


def _figure(name: str, value: Any) -> str:
    if value is None:
        return ""
    number = finite(value)
    if number is None:
        return printable(str(value), 300)
    if name in SHARES:
        return percent(number)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{number:,.4g}" if abs(number) < 1000 else f"{number:,.0f}"


def _bounded(path: Path) -> None:
    if path.stat().st_size > LARGEST:
        raise DataError(f"{printable(str(path))} has {path.stat().st_size:,} bytes, more than is read for a report.")


def read_object(path: Path) -> dict[str, Any]:
    """Of a JSON object; empty where there is no file."""
    if not path.is_file():
        return {}
    _bounded(path)
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{printable(str(path))} is damaged ({type(error).__name__}). `dynotune verify` says more."
        ) from error
    if not isinstance(found, dict):
        raise DataError(f"{printable(str(path))} is no JSON object, and so none of ours.")
    return found
