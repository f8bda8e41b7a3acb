"""A profile as a page: one HTML file that loads nothing."""

from collections.abc import Iterator
from html import escape

from dynotune.measure.kernel_classes import IDLE
from dynotune.profile.analysis.analyse import label
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.showing.shown import Shown, ms, shown
from dynotune.show.page import Code, Fold, Heading, Lead, Lines, Part, Picture, Section, Table, render

WIDTH, ROW, LABEL, VALUE, TOP = 860, 28, 190, 210, 8
LEAST = 0.002
"""Share of the step from which on a class is drawn."""


def page(findings: Findings) -> str:
    one = shown(findings)
    return render("dynotune profile", [Section(one.title, tuple(_parts(findings, one)))])


def _parts(findings: Findings, one: Shown) -> Iterator[Part]:
    from dynotune.show.grids import Line, Tone

    yield Lead(one.bottleneck.text)
    yield Lines((Line(" · ".join(one.figures), Tone.QUIET),))
    if findings.rows:
        yield Heading("Where the time of a step goes")
        yield Picture(bars(findings), "Each class of work in a step; the stronger part is its floor on this device: what the"
                      " same operations take at the rates that were measured here. Idle time has no floor.")  # fmt: skip
        yield Table(one.grid)
    yield Heading("Found")
    yield Lines(one.found)
    yield Heading("What would help")
    for line, command in one.remedies:
        yield Lines((line,))
        if command:
            yield Code(command)
    if one.ruled_out:
        yield Lines(one.ruled_out)
    if one.expected:
        yield Heading("How fast it could be")
        yield Lines(one.expected)
    if one.placement:
        yield Heading("Where things lie, and in what precision they ran")
        yield Lines(tuple(Line(text) for text in one.placement))
    if one.unknown:
        yield Heading("What this profile cannot tell")
        yield Lines(tuple(Line(text, Tone.DOUBT) for text in one.unknown))
    if one.kernels.rows:
        yield Fold("The longest kernels" if findings.on_device else "The longest operators", (Table(one.kernels),))


def bars(findings: Findings) -> str:
    """A bar for each class of the step, its floor in the bar."""
    rows = [row for row in findings.rows if row.share >= LEAST]
    longest = max((row.seconds for row in rows), default=1.0)
    height = TOP * 2 + ROW * len(rows)
    wide = WIDTH - LABEL - VALUE
    said = "; ".join(f"{label(row.work, findings.on_device)} {100 * row.share:.0f} %" for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(said, quote=True)}">',
        f"<title>{escape(said)}</title>",
    ]
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        colour = "f-bad" if row.work in IDLE and findings.on_device else "f0"
        length = max(1.0, wide * row.seconds / longest)
        name, text = label(row.work, findings.on_device), f"{ms(row.seconds)}, {100 * row.share:.1f} %"
        if row.floor and (row.work not in IDLE):
            text += ", floor beaten" if row.beaten else f", {row.seconds / row.floor:.2f} x floor"
        parts.append(f'<text x="{LABEL - 10}" y="{y + 18}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect class="{colour}" x="{LABEL}" y="{y + 4}" width="{length:.1f}" height="{ROW - 10}" opacity=".45"/>'
        )
        if row.floor:
            floor = min(length, wide * row.floor / longest)
            parts.append(f'<rect class="{colour}" x="{LABEL}" y="{y + 4}" width="{floor:.1f}" height="{ROW - 10}"/>')
        parts.append(f'<text class="small" x="{LABEL + length + 8:.1f}" y="{y + 18}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>"])
