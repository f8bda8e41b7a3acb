"""Several runs beside one another: a table of what each was and came to, below what makes them hard to compare.

Nothing is judged: two runs are no paired measurement, and `dynotune bench` is. What differs between them that decides about
their figures is said first, and a figure that a run does not have is a dash, with its reason below the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynotune.config.reading.files import read_file
from dynotune.errors import ConfigError, DataError
from dynotune.measure.words import same_definitions
from dynotune.printable import printable
from dynotune.report.curves import finite, read_curves
from dynotune.report.model_card import public_name
from dynotune.report.run_page import read_object
from dynotune.report.speed import percent
from dynotune.show.grids import Grid, Line, Tone
from dynotune.show.page import NO_FIGURE, Heading, Lines, Part, Table
from dynotune.speedups.record import Record
from dynotune.speedups.table import State

NO_SUMMARY = "the folder has no summary.json: the run has not come to an end"

DEFINED = ("real tokens", "real tokens/s", "pairs/s", "fill", "MFU")
"""What `measure/` defines: of two versions of its definitions they are not set beside one another."""

OTHER = {"model": "another model", "method": "another method", "data": "other data", "machine": "another machine"}
"""What two runs must share for their figures to be held against each other, and how it is said that they do not."""


@dataclass(frozen=True, slots=True)
class Cell:
    """text: empty for a figure that is not there; why: then the reason."""

    text: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    """With its number, since folders of two places may be called the same."""

    summary: Mapping[str, Any]
    cells: Mapping[str, Cell]
    facts: Mapping[str, str]
    """By `OTHER`; what a folder does not tell is left out."""


def runs_beside(runs: Sequence[Path]) -> list[Part]:
    """Empty of fewer than two. Raises `DataError` for a damaged file."""
    if len(runs) < 2:
        return []
    read = [_read(f"{i}. {printable(run.resolve().name, 60)}", run) for i, run in enumerate(runs, 1)]
    left_out: tuple[str, ...] = ()
    said: list[Line] = []
    try:
        # Of a run without a summary there is no figure to compare.
        if told := {run.name: run.summary for run in read if run.summary}:
            same_definitions(told)
    except DataError as error:
        left_out = DEFINED
        said.append(Line(printable(f"{error} Left out of the table: {', '.join(DEFINED)}.", 700), Tone.BAD))
    pairs = "pairs/s" not in left_out and sum(bool(run.cells["pairs/s"].text) for run in read) > 1
    said += [Line(f"note: {text}", Tone.DOUBT) for text in _differences(read, pairs)]
    rows = tuple(
        (Line(what), *(Line(run.cells[what].text or NO_FIGURE) for run in read))
        for what in read[0].cells
        if what not in left_out and (what != "pairs/s" or any(run.cells[what].text for run in read))
    )
    lacking = tuple(line for run in read if (line := _lacking(run, [row[0].text for row in rows])) is not None)
    return [
        Heading("Runs beside one another"),
        *([Lines(tuple(said))] if said else []),
        Table(Grid("whole runs, each by the files of its folder", ("figure", *(run.name for run in read)), rows)),
        *([Lines(lacking)] if lacking else []),
    ]


def _lacking(run: _Run, shown: Sequence[str]) -> Line | None:
    """Why the run has no such figures: those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for what in shown:
        if not run.cells[what].text:
            by_reason.setdefault(run.cells[what].why, []).append(what)
    told = "; ".join(f"{', '.join(what)}: {why}" for why, what in by_reason.items())
    return Line(f"{NO_FIGURE} of {run.name}: {told}.", Tone.QUIET) if told else None


def _read(name: str, folder: Path) -> _Run:
    summary = read_object(folder / "summary.json")
    what = {
        "model": _model(folder / "config.yaml"),
        "method": _text(summary.get("method"), "" if summary else NO_SUMMARY),
        **_figures(summary),
        **_losses(folder / "metrics.jsonl"),
        "seconds of training": _number(summary, "train_seconds", lambda value: f"{value:,.1f}"),
        "speed-ups engaged": _engaged(folder),
    }
    facts = {
        "model": what["model"].text,
        "method": what["method"].text,
        "data": _data(read_object(folder / "ledger.json")),
        "machine": _machine(read_object(folder / "environment.json")),
    }
    return _Run(name, summary, what, {key: text for key, text in facts.items() if text})


def _model(config: Path) -> Cell:
    if not config.is_file():
        return Cell("", "the folder has no config.yaml")
    name = read_file(config).values.get("model_name_or_path")
    return _text(public_name(name) if isinstance(name, str) else None, "config.yaml names none")


def _figures(summary: Mapping[str, Any]) -> dict[str, Cell]:
    def whole(value: float) -> str:
        return f"{value:,.0f}"

    no_mfu = printable(str(summary.get("no_mfu", "not measured")), 120)
    return {
        "steps": _number(summary, "steps", whole),
        "real tokens": _number(summary, "real_tokens", whole),
        "real tokens/s": _number(summary, "tokens_per_second", whole),
        "pairs/s": _number(summary, "pairs_per_second", lambda value: f"{value:,.1f}", "no preference training"),
        "fill": _number(summary, "fill", percent),
        "MFU": _number(summary, "mfu", percent, no_mfu),
        "peak memory, GiB": _number(summary, "peak_memory_gib", lambda value: f"{value:.2f}", "no GPU told it"),
    }


def _number(summary: Mapping[str, Any], key: str, show: Callable[[float], str], why: str = "not measured") -> Cell:
    value = finite(summary.get(key))
    return Cell("", why if summary else NO_SUMMARY) if value is None else Cell(show(value))


def _text(value: Any, why: str) -> Cell:
    return Cell(printable(value, 80)) if isinstance(value, str) and value else Cell("", why or "not told")


def _losses(metrics: Path) -> dict[str, Cell]:
    """The last of the training curve, and of each set that was held out."""
    curves = read_curves(metrics) if metrics.is_file() else []
    no_rows = "metrics.jsonl has no such row" if metrics.is_file() else "the folder has no metrics.jsonl"
    train = [f"{curve.losses[-1]:.4f}" for curve in curves if curve.is_train]
    held_out = [curve for curve in curves if not curve.is_train]
    evaluated = ", ".join(
        f"{curve.losses[-1]:.4f}" + (f" ({printable(curve.name, 40)})" if len(held_out) > 1 else "")
        for curve in held_out[:6]
    )
    return {
        "last train loss": Cell("".join(train), no_rows),
        "last eval loss": Cell(evaluated, no_rows if not metrics.is_file() else "nothing was evaluated"),
    }


def _engaged(folder: Path) -> Cell:
    """Speed-ups of which a traced step showed all that was expected, of those that were taken."""
    if not (folder / "engagement.json").is_file():
        return Cell("", "the folder has no engagement.json")
    try:
        record = Record.read(folder / "engagement.json")
    except ConfigError as error:
        raise DataError(str(error)) from error
    taken = [row for row in record.rows if row.state is not State.LEFT_OUT]
    return Cell(f"{sum(row.state is State.ENGAGED for row in taken)} of {len(taken)}")


def _data(ledger: Mapping[str, Any]) -> str:
    """Where the rows came from, and how much of them was used: the same name may have held other rows."""
    sources = ledger.get("sources")
    if not isinstance(sources, Mapping):
        return ""
    names = ", ".join(sorted(printable(public_name(str(source)), 60) for source in sources)[:6])
    counts = [
        f"{count:,.0f} {what} used"
        for what, key in (("rows", "rows_used"), ("tokens", "tokens_used"))
        if (count := finite(ledger.get(key))) is not None
    ]
    return f"{names} ({', '.join(counts)})" if counts else names


def _machine(environment: Mapping[str, Any]) -> str:
    gpus, cpu = environment.get("gpus"), environment.get("cpu")
    names = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    if names:
        return printable(f"{len(names)} x {', '.join(sorted(set(names)))}", 120)
    return printable(str(cpu["model"]), 120) if isinstance(cpu, Mapping) and "model" in cpu else ""


def _differences(runs: Sequence[_Run], pairs: bool) -> Iterator[str]:
    """Between the first run and each other, and of one alone what its figures do not show.

    pairs: whether the table has pairs/s of several runs.
    """
    first = runs[0]
    for run in runs[1:]:
        for what, text in run.facts.items():
            if what in first.facts and first.facts[what] != text:
                yield f"{run.name} has {OTHER[what]} than {first.name}: {text}, and {first.facts[what]}"
    for run in runs:
        if isinstance(interrupted := run.summary.get("interrupted"), Mapping):
            where = f"{interrupted.get('step')} of {interrupted.get('of')}"
            yield f"{run.name} ended before its last step, after {printable(where, 60)}"
    # A run without a summary saved nobody knows how many; one with a summary that names none saved none.
    saved = {run.name: finite(run.summary.get("share_of_tokens_saved")) or 0.0 for run in runs if run.summary}
    if len({*saved.values()}) > 1:
        each = ", ".join(f"{percent(share)} of {name}" for name, share in saved.items())
        advice = ": compare pairs/s" if pairs else ""
        yield f"tokens that stood once for several sequences count once as real tokens ({each}){advice}"
