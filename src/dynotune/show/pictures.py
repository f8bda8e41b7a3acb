"""Pictures of a bench as SVG for a page: intervals, pairs, blocks in the order in which they ran, rates, memory.

Colours are the page's, by class; shapes and words say the same for those who do not see them. Every text of others is
escaped here. Logarithmic where ratios are drawn, so that twice and half as fast are equally far from no change.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

from dynotune.show.gains import gain_in_words
from dynotune.show.terminal import cropped
from dynotune.show.ticks import round_ticks

WIDTH = 860
LABEL = 210
"""Width of the names' column."""

VALUE = 250
"""Width of the column of figures in words."""

ROW = 26
TOP = 12
BOTTOM = 40
LETTER, LINE = 6.5, 15
"""Width of a letter of an axis, and height of its text."""

MOST_TICKS = 8

FACTORS = ((2.0, 1.5), (2.0,), (4.0,), *((10.0**power,) for power in range(1, 309)))
"""Of ticks of a long axis, the closest that has room for its labels: doublings with halves between, doublings, powers of 4,
of 10, of 100 ..."""

SERIES = 6
"""Colours, after which they begin anew; shapes then differ."""


@dataclass(frozen=True, slots=True)
class Span:
    """A row of intervals."""

    label: str
    ratio: tuple[float, float, float]
    """Low, estimate, high."""

    tone: str
    """`good`, `bad`, `doubt` or `quiet`."""

    words: str = ""


def intervals(spans: Sequence[Span], title: str, band: float = 0.0) -> str:
    """A forest plot: each ratio with its interval. band: the noise floor, a share: identical arms were so far apart."""
    edges = [edge for span in spans for edge in (span.ratio[0], span.ratio[2])] + [1 / (1.01 + band), 1.01 + band]
    scale = _Scale(math.log(min(edges)), math.log(max(edges)), LABEL, WIDTH - VALUE - 20)
    height = TOP + ROW * len(spans) + BOTTOM
    parts = _begin(title, height, "; ".join(f"{span.label}: {gain_in_words(*span.ratio)}" for span in spans))
    parts += _ratio_axis(scale, height, band)
    for i, span in enumerate(spans):
        y = TOP + ROW * (i + 0.5)
        low, middle, high = (scale(math.log(value)) for value in span.ratio)
        parts.append(_name(span.label, y))
        parts.append(f'<line class="line s-{span.tone}" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            _mark({"good": 2, "bad": 3, "quiet": 0}.get(span.tone, 1), middle, y, f"s-{span.tone} f-{span.tone}")
        )
        parts.append(
            f'<text x="{WIDTH - VALUE}" y="{y + 4:.1f}">{escape(span.words or gain_in_words(*span.ratio))}</text>'
        )
    return _end(parts)


def pairs(rows: Sequence[tuple[str, Sequence[float]]], title: str, band: float = 0.0) -> str:
    """How far each pair lies from the mean of its row. rows: name and log ratios."""
    away = [[value - sum(values) / len(values) for value in values] for _, values in rows]
    edge = max([abs(value) for values in away for value in values] + [math.log1p(band), 1e-4]) * 1.05
    scale = _Scale(-edge, edge, LABEL, WIDTH - 20)
    height = TOP + ROW * len(rows) + BOTTOM
    parts = _begin(title, height, f"{len(rows)} rows, pairs up to {100 * math.expm1(edge):.2g} % from their mean")
    parts += _ratio_axis(scale, height, band)
    for i, ((label, _), values) in enumerate(zip(rows, away, strict=True)):
        y = TOP + ROW * (i + 0.5)
        parts.append(_name(label, y))
        for k, value in enumerate(values):
            up = (k % 3 - 1) * 4.5  # pairs of the same value must not hide one another
            parts.append(_mark(0, scale(value), y + up, "s0 hollow", 3.2))
    return _end(parts)


@dataclass(frozen=True, slots=True)
class Run:
    """A block in the order in which blocks ran."""

    arm: int
    value: float
    """Its rate over the mean rate of its arm."""

    void: bool = False


def blocks(runs: Sequence[Run], names: Sequence[str], title: str) -> str:
    """Rates of blocks as they came, each against the mean of its arm: drift and outliers."""
    height = 300
    legend = [names[i : i + 3] for i in range(0, len(names), 3)]
    top = 20 + 20 * len(legend)
    height += 20 * len(legend)
    values = [math.log(run.value) for run in runs]
    edge = max(max(map(abs, values), default=0.0), 0.005) * 1.1
    across, up = _Scale(0, max(1, len(runs) - 1), 64, WIDTH - 20), _Scale(-edge, edge, height - BOTTOM, top)
    parts = _begin(title, height, f"{len(runs)} blocks of {len(names)} arms")
    for tick, label in _ratio_ticks(up, lambda label: LINE):
        y = up(tick)
        style = "zero" if tick == 0 else "grid"
        parts.append(f'<line class="{style}" x1="64" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" x="58" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for i in range(len(runs)):
        if len(runs) <= 30 or i % (len(runs) // 15) == 0:
            parts.append(
                f'<text class="small" x="{across(i):.1f}" y="{height - 22}" text-anchor="middle">{i + 1}</text>'
            )
    parts.append(f'<text class="small" x="{WIDTH / 2}" y="{height - 6}" text-anchor="middle">block, as they ran</text>')
    for arm in range(len(names)):
        own = [(across(i), up(math.log(run.value))) for i, run in enumerate(runs) if run.arm == arm and not run.void]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in own)
        parts.append(f'<polyline class="line s{arm % SERIES}" style="stroke-width:1;opacity:.5" points="{points}"/>')
    for i, run in enumerate(runs):
        x, y = across(i), up(math.log(run.value))
        parts.append(_mark(run.arm, x, y, f"s{run.arm % SERIES} " + ("hollow" if run.void else f"f{run.arm % SERIES}")))
        if run.void:
            parts.append(f'<text class="small" x="{x + 6:.1f}" y="{y - 4:.1f}">void</text>')
    for i, name in enumerate(names):
        x, y = 70 + 215 * (i % 3), 20 + 20 * (i // 3)
        parts.append(_mark(i, x, y - 4, f"s{i % SERIES} f{i % SERIES}"))
        parts.append(f'<text class="small" x="{x + 10}" y="{y}">{escape(cropped(name, 26))}</text>')
    return _end(parts)


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of bars. `value` None: there is none, and `words` say why."""

    label: str
    value: float | None
    words: str
    wider: float | None = None
    """A second figure that holds the first: what is reserved, of what is allocated."""

    tick: float | None = None
    """A third one, as a mark."""


def bars(rows: Sequence[Bar], title: str, unit: str) -> str:
    """Horizontal bars from zero."""
    most = max([value for row in rows for value in (row.value, row.wider, row.tick) if value is not None] or [1.0])
    scale = _Scale(0, most or 1.0, LABEL, WIDTH - VALUE - 20)
    height = TOP + ROW * len(rows) + BOTTOM
    parts = _begin(title, height, "; ".join(f"{row.label}: {row.words}" for row in rows))
    for tick in (tick for tick in round_ticks(0, most or 1.0, 5) if tick <= (most or 1.0)):
        x = scale(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{height - 24}" text-anchor="middle">{tick:,g}</text>')
    parts.append(f'<text class="small" x="{LABEL}" y="{height - 6}">{escape(unit)}</text>')
    for i, row in enumerate(rows):
        y = TOP + ROW * i + 5
        parts.append(_name(row.label, y + 8))
        if row.wider is not None:
            wide = scale(row.wider) - LABEL
            parts.append(f'<rect class="hollow s0 mark" x="{LABEL}" y="{y}" width="{wide:.1f}" height="16"/>')
        if row.value is not None:
            wide = scale(row.value) - LABEL
            parts.append(f'<rect class="f0" x="{LABEL}" y="{y}" width="{wide:.1f}" height="16"/>')
        if row.tick is not None:
            x = scale(row.tick)
            parts.append(f'<line class="zero" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 2}" y2="{y + 18}"/>')
        parts.append(f'<text x="{WIDTH - VALUE}" y="{y + 12}">{escape(cropped(row.words, 32))}</text>')
    return _end(parts)


def gib_of(value: float | None) -> float | None:
    return None if value is None else value / (1 << 30)


class _Scale:
    """From values to places."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self.first, self.last = first, last

    def __call__(self, value: float) -> float:
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)


def _begin(title: str, height: float, description: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
        f'role="img" aria-label="{escape(title, quote=True)}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description[:2000])}</desc>",
    ]


def _end(parts: list[str]) -> str:
    return "\n".join([*parts, "</svg>"])


def _name(text: str, y: float) -> str:
    short = cropped(text, 25)
    full = f"<title>{escape(text)}</title>" if short != text else ""
    return f'<text x="{LABEL - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(short)}{full}</text>'


def _ratio_axis(scale: _Scale, height: float, band: float) -> list[str]:
    """Of log ratios: ticks in percent or times, the noise floor, and the line of no change."""
    end = height - BOTTOM + 4
    parts = []
    if band > 0:
        left, right = scale(-math.log1p(band)), scale(math.log1p(band))
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{end - TOP:.1f}"/>'
        )
    for tick, label in _ratio_ticks(scale, lambda label: LETTER * (len(label) + 1)):
        x = scale(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{end:.1f}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{height - 16:.1f}" text-anchor="middle">{label}</text>')
    x = scale(0.0)
    parts.append(f'<line class="zero" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{end:.1f}"/>')
    return parts


def _ratio_ticks(scale: _Scale, room: Callable[[str], float]) -> list[tuple[float, str]]:
    """Of an axis of log ratios: percents, and factors where it is long. room: that a label takes along the axis."""
    if scale.high - scale.low <= math.log(1.8):
        return _percents(scale.low, scale.high, 6)
    return next(ticks for ticks in map(partial(_factors, scale), FACTORS) if _fits(ticks, scale, room))


def _fits(ticks: Sequence[tuple[float, str]], scale: _Scale, room: Callable[[str], float]) -> bool:
    """Few of them, of which none runs into the next."""
    places = [(scale(tick), room(label)) for tick, label in ticks]
    beside = itertools.pairwise(places)
    return len(ticks) <= MOST_TICKS and all(abs(b - a) >= (one + other) / 2 for (a, one), (b, other) in beside)


def _factors(scale: _Scale, of: tuple[float, ...]) -> list[tuple[float, str]]:
    """Ticks on all powers of a factor, and these times the others."""
    base, *between = of
    powers = range(math.floor(scale.low / math.log(base)), math.ceil(scale.high / math.log(base)) + 1)
    ticks = sorted(power * math.log(base) + math.log(times) for power in powers for times in (1.0, *between))
    return [(tick, f"{_plain(math.exp(tick))}x") for tick in ticks if scale.low <= tick <= scale.high]


def _plain(factor: float) -> str:
    """`0.0625`, `1.5`, `1,024`, `1e+06`."""
    return f"{factor:.3g}" if factor < 999.5 else f"{factor:,.0f}" if factor < 999_999.5 else f"{factor:.0e}"


def _percents(low: float, high: float, about: int) -> list[tuple[float, str]]:
    """Ticks of a logarithmic axis on round percents, with their labels."""
    ticks = round_ticks(100 * math.expm1(low), 100 * math.expm1(high), about)
    inside = [tick for tick in ticks if tick > -100 and low <= math.log1p(tick / 100) <= high]
    return [(math.log1p(tick / 100), "0" if tick == 0 else f"{tick:+.3g} %") for tick in inside]


def _mark(shape: int, x: float, y: float, style: str, size: float = 4.5) -> str:
    match shape % 4:
        case 0:
            return f'<circle class="mark {style}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>'
        case 1:
            box = f'x="{x - size:.1f}" y="{y - size:.1f}" width="{2 * size:g}" height="{2 * size:g}"'
            return f'<rect class="mark {style}" {box}/>'
        case 2:
            points = ((x, y - size - 1), (x + size + 1, y + size), (x - size - 1, y + size))
        case _:
            points = ((x, y + size + 1), (x + size + 1, y - size), (x - size - 1, y - size))
    return f'<polygon class="mark {style}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
