"""What the meter saw, on the page of a run: what held it back, where its wall time went, and its figures over steps."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynotune.measure.wall import PRODUCTIVE, Kind
from dynotune.printable import printable
from dynotune.report.curves import Curve, finite
from dynotune.report.svg import svg_curves
from dynotune.show.grids import Grid, Line, Tone
from dynotune.show.page import Fold, Heading, Lines, Part, Picture, Table
from dynotune.show.pictures import Bar, bars

POINTS = 2000
"""Of a curve that are drawn: of more, so many that are evenly apart, the last one among them."""

MOST_WARNINGS = 50

WORDS = {
    Kind.FORWARD_BACKWARD: "forward and backward",
    Kind.DATA_WAIT: "data wait",
    Kind.FIRST_STEP: "first step",
    Kind.SET_UP: "set-up",
    Kind.LOADING: "data and model",
}

PICTURES: tuple[tuple[str, str, float, str, tuple[tuple[str, str], ...]], ...] = (
    ("Speed", "tok/s", 1.0, "Tokens a second over the training time of each row, all devices together.",
     (("real", "tokens_per_second"), ("processed", "processed_tokens_per_second"), ("label", "label_tokens_per_second"))),
    ("Use", "%", 100.0, "Of the peak: MFU without recomputation and padding, HFU with both. Of processed tokens: fill. Of"
     " the training time: waiting for data. Of the wall time so far: goodput.",
     (("MFU", "mfu"), ("HFU", "hfu"), ("fill", "fill"), ("wait", "data_wait"), ("goodput", "goodput"))),
    ("Memory", "GiB", 1.0, "Of the GPU: the most that was allocated so far, and what PyTorch holds; of the host: the"
     " run, and processes that it started.",
     (("peak", "peak_memory_gib"), ("reserved", "memory/reserved_gib"), ("host", "host/rss_gib"),
      ("workers", "host/workers_rss_gib"))),
    ("GPU use", "%", 100.0, "Share of the time in which any kernel ran.", (("GPU", "gpu/utilisation"),)),
    ("Clocks", "MHz", 1.0, "Mean clock of the multiprocessors.", (("SM", "gpu/sm_mhz"),)),
    ("Power and heat", "W, °C", 1.0, "Mean power, and the most heat.", (("W", "gpu/power_watts"), ("°C", "gpu/celsius"))),
    ("Processors", "busy", 1.0, "Processors of the host that the run and its workers kept busy.",
     (("processors", "host/cpus_busy"),)),
)  # fmt: skip
"""Of a page: title, unit, factor, caption, and the curves: what each is called there, and its name in metrics.jsonl."""

OPEN = 2
"""Pictures that are not folded."""


def rows_of(metrics: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl that are objects with a step. `read_curves` has checked the lines."""
    found = []
    for line in metrics.read_text(encoding="utf-8").split("\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and not isinstance(row["step"], bool):
            found.append(row)
    return found


def warnings(path: Path) -> Iterator[Part]:
    """What the run said while it ran. path: of its warnings.jsonl."""
    if not path.is_file():
        return
    said = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:MOST_WARNINGS]:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict):
            rank = f" on rank {one['rank']}" if one.get("rank") else ""
            text = f"{one.get('name')}{rank}, at step {one.get('step')}: {one.get('figure')}. {one.get('remedy')}"
            said.append(Line(printable(text, 600), Tone.DOUBT))
    if said:
        yield Heading("What held it back")
        yield Lines(tuple(said))


def wall_time(summary: Mapping[str, Any]) -> Iterator[Part]:
    """Where the wall time of all processes of the run went, from its summary."""
    times = {kind: seconds for kind in Kind if (seconds := finite(summary.get(f"time/{kind}"))) is not None}
    whole = sum(times.values())
    if whole <= 0:
        return
    shown = sorted(times.items(), key=lambda one: -one[1])
    rows = [
        Bar(WORDS.get(kind, str(kind)), seconds, f"{seconds:,.1f} s, {100 * seconds / whole:.1f} %")
        for kind, seconds in shown
    ]
    good = sum(seconds for kind, seconds in times.items() if kind in PRODUCTIVE) / whole
    yield Heading("Where the time went")
    yield Picture(
        bars(rows, "Wall time by what it went to", "seconds of wall time"),
        f"All of the run's {whole:,.1f} s, each second once. Goodput, the share of forward, backward, communication and"
        f" optimizer of steps that reached the weights: {100 * good:.1f} %.",
    )


def pictures(rows: list[dict[str, Any]]) -> Iterator[Part]:
    """The meter's figures over steps; the less asked for are folded."""
    drawn: list[tuple[str, Picture]] = []
    for title, unit, factor, caption, names in PICTURES:
        curves = [curve for called, name in names if (curve := _curve(called, name, factor, rows)) is not None]
        if curves:
            drawn.append((title, Picture(svg_curves(curves, f"{title} over steps", unit), caption)))
    for title, picture in drawn[:OPEN]:
        yield Heading(title)
        yield picture
    if drawn[OPEN:]:
        yield Fold("Memory and machine", tuple(part for title, one in drawn[OPEN:] for part in (Heading(title), one)))


def peaks(summary: Mapping[str, Any]) -> Iterator[Part]:
    """Most memory by phase, where a GPU told it."""
    rows = tuple(
        (Line(printable(name.removeprefix("memory/peak_").removesuffix("_gib"), 40)), Line(f"{value:.2f}"))
        for name, raw in summary.items()
        if name.startswith("memory/peak_") and (value := finite(raw)) is not None
    )
    if rows:
        yield Table(Grid("most that was allocated, by phase, in GiB", ("phase", "GiB"), rows))


def thinned(curve: Curve) -> Curve:
    """At most `POINTS` points."""
    if len(curve.steps) <= POINTS:
        return curve
    kept = [round(i * (len(curve.steps) - 1) / (POINTS - 1)) for i in range(POINTS)]
    return Curve(curve.name, [curve.steps[i] for i in kept], [curve.losses[i] for i in kept], curve.not_finite)


def _curve(called: str, name: str, factor: float, rows: list[dict[str, Any]]) -> Curve | None:
    points = {row["step"]: factor * value for row in rows if (value := finite(row.get(name))) is not None}
    steps = sorted(points)
    return thinned(Curve(called, steps, [points[step] for step in steps])) if steps else None
