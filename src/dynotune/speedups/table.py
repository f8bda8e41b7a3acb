"""The table of speed-ups: what was asked of each, what became of it, what was seen, and what it gains here.

Rows are data: `dynotune plan` and the start of a run make them of decisions, a run behind its proof adds what was observed,
and `dynotune engaged` reads them from the run folder.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from dynotune.printable import printable
from dynotune.show.gains import NO_EFFECT, gain_in_words
from dynotune.speedups.choose import Decision
from dynotune.speedups.contract import Kind
from dynotune.speedups.expectation import Observation, Verdict
from dynotune.speedups.whole_step import Presence, Unwanted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class Effect:
    """What a paired measurement on this machine gave."""

    ratio: float
    """Time of a step without it over the time with it: 1.25 is a quarter more steps in the same time."""

    low: float
    high: float
    """The interval of the ratio."""

    bench: str
    """Which measurement: its name in the history."""

    date: str = ""
    """ISO 8601."""


EffectOf = Callable[[str], Effect | None]
"""What a speed-up was measured to gain on this machine, by name."""

NOT_MEASURED = "not measured here"

_WIDE = 120
"""Columns from which on the effect has a column of its own."""


class State(StrEnum):
    """What became of one."""

    CHOSEN = "chosen"
    """It is put in, or will be; nothing is proved yet."""

    LEFT_OUT = "left out"
    ENGAGED = "engaged"
    PARTIAL = "partial"
    NOT_ENGAGED = "not engaged"
    UNKNOWN = "unknown"
    TAKEN_OUT = "taken out"
    """Its proof failed, and the run went on without it."""


_STYLES = {
    State.CHOSEN: "cyan",
    State.LEFT_OUT: "dim",
    State.ENGAGED: "green",
    State.PARTIAL: "yellow",
    State.NOT_ENGAGED: "bold red",
    State.UNKNOWN: "magenta",
    State.TAKEN_OUT: "bold red",
}

_PRESENCES = {
    Presence.ABSENT: "green",
    Presence.FOUND: "bold red",
    Presence.UNKNOWN: "magenta",
    Presence.ALLOWED: "dim",
}

_STATES = {
    Verdict.ENGAGED: State.ENGAGED,
    Verdict.PARTIAL: State.PARTIAL,
    Verdict.NOT_ENGAGED: State.NOT_ENGAGED,
    Verdict.UNKNOWN: State.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One speed-up."""

    name: str
    kind: Kind
    asked: str
    """`auto`, `on` or `off`."""

    asked_by: str
    """The key that asked, as written; empty where nobody did."""

    state: State
    evidence: str
    """What was seen, in a line; of one that is left out: why; of one that is planned: what it does."""

    seen: int = 0
    of: int = 0
    """Places where it was seen, of those where it must be. Before the proof: 0 of those where it stands."""

    missing: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    remedy: str = ""
    expected: bool = False
    """Left out for a reason that surprises nobody."""

    effect: Effect | None = None

    @property
    def count(self) -> str:
        """What the column `engaged` says."""
        if self.state is State.CHOSEN:
            return f"chosen, {self.of} places" if self.of > 1 else "chosen"
        if self.state in (State.ENGAGED, State.PARTIAL, State.NOT_ENGAGED) and self.of:
            return f"{self.seen} of {self.of}" + ("" if self.state is State.ENGAGED else f", {self.state}")
        return str(self.state)

    @property
    def details(self) -> list[str]:
        """What the column `evidence` says, a sentence each."""
        said = [self.evidence] if self.evidence else []
        if self.missing:
            shown = ", ".join(self.missing[:8]) + (
                f" and {len(self.missing) - 8} more" if len(self.missing) > 8 else ""
            )
            said.append(f"missing at {shown}")
        said += [f"against it: {one}" for one in self.against]
        if self.asked == "on" and self.asked_by:
            said.append(f"asked for by {self.asked_by}")
        if self.remedy and self.state in (State.LEFT_OUT, State.TAKEN_OUT) and not self.expected:
            said.append(f"to have it: {self.remedy}")
        return [printable(one) for one in said]

    @property
    def gain(self) -> str:
        """What the column `effect` says."""
        if self.effect is None:
            return NOT_MEASURED if self.state is not State.LEFT_OUT else ""
        words = gain_in_words(self.effect.low, self.effect.ratio, self.effect.high)
        end = "" if self.kind is Kind.EXACT else f", {self.kind}"
        end += f", {self.effect.date[:10]}" if self.effect.date else ""
        if self.effect.low <= 1 <= self.effect.high:
            return f"{NO_EFFECT} ({words}){end}"
        return f"{'slower: ' if self.effect.ratio < 1 else ''}{words}{end}"

    @property
    def is_open(self) -> bool:
        """Whether it was to run, and nobody saw it run in every place."""
        return self.state not in (State.ENGAGED, State.LEFT_OUT)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `TypeError` or `KeyError` for what is no row."""
        effect = body["effect"]
        row = cls(
            **{
                **body,
                "kind": Kind(body["kind"]),
                "state": State(body["state"]),
                "missing": tuple(body["missing"]),
                "against": tuple(body["against"]),
                "effect": None if effect is None else Effect(**effect),
            }
        )
        texts = (row.name, row.asked, row.asked_by, row.evidence, row.remedy, *row.missing, *row.against)
        texts += () if row.effect is None else (row.effect.bench, row.effect.date)
        numbers = (row.seen, row.of, *((row.effect.ratio, row.effect.low, row.effect.high) if row.effect else ()))
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(n, int | float) for n in numbers):
            raise TypeError("a value of another type")
        return row


def planned_rows(decisions: Iterable[Decision], effect: EffectOf = lambda name: None) -> list[Row]:
    """Before the proof: what is chosen, and why the rest is not."""
    return [_planned(one, effect) for one in decisions]


def proved_rows(
    decisions: Iterable[Decision], observations: Mapping[str, Observation], effect: EffectOf = lambda name: None
) -> list[Row]:
    """Behind the proof. observations: by name; of those that were taken out after it, too."""
    rows = []
    for one in decisions:
        row, seen = _planned(one, effect), observations.get(one.name)
        if seen is not None:
            state = _STATES[seen.verdict] if one.no is None else State.TAKEN_OUT
            said = seen.evidence if one.no is None else f"{one.no.reason}; {seen.evidence}".removesuffix("; ")
            row = replace(
                row, state=state, evidence=said, seen=seen.seen, of=seen.of, missing=seen.missing, against=seen.against
            )
        rows.append(row)
    return rows


def _planned(one: Decision, effect: EffectOf) -> Row:
    row = Row(one.name, one.speedup.kind, one.setting, one.asked_by, State.CHOSEN, "", effect=effect(one.name))
    if one.no is not None:
        return replace(
            row, state=State.LEFT_OUT, evidence=one.no.reason, remedy=one.no.remedy, expected=one.no.expected
        )
    if one.installed is None:
        return replace(row, evidence=one.speedup.summary)
    others = f"not at {len(one.installed.left_out)} others" if one.installed.left_out else ""
    return replace(row, of=len(one.installed.places), evidence=others)


def rendered(rows: Sequence[Row], width: int, unwanted: Sequence[Unwanted] = ()) -> "Table":
    """For a terminal of `width` columns: those that were to run, those that surprisingly do not, and below them what the
    step should not hold."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = width >= _WIDE
    shown = [row for row in rows if not (row.state is State.LEFT_OUT and row.expected)]
    has_evidence = any(row.details or (not wide and row.effect) for row in shown) or any(
        one.evidence for one in unwanted
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=False)
    table.add_column("speed-up", no_wrap=True)
    if wide:
        table.add_column("kind", no_wrap=True)
    table.add_column("asked", no_wrap=True)
    table.add_column("engaged", min_width=8, max_width=None if wide or not has_evidence else 14)
    if has_evidence:
        table.add_column("evidence", overflow="fold")
    if wide:
        table.add_column("effect here", overflow="fold", max_width=28)
    for row in shown:
        evidence = Text("\n".join(row.details))
        if not wide and row.gain and row.effect is not None:
            evidence.append(f"{chr(10) if evidence else ''}effect here: {row.gain}")
        seen = [evidence] if has_evidence else []
        kind = [Text(row.kind)] if wide else []
        name = Text(row.name)
        if not wide and row.kind is not Kind.EXACT:
            name.append(f"\n({row.kind})", style="yellow")
        gain = [Text(row.gain, style="" if row.effect else "dim")] if wide else []
        table.add_row(name, *kind, Text(row.asked), Text(row.count, style=_STYLES[row.state]), *seen, *gain)
    for one in unwanted:
        seen = [Text(one.evidence)] if has_evidence else []
        state = Text(one.state, style=_PRESENCES[one.presence])
        table.add_row(Text(printable(one.what)), *([Text("")] if wide else []), Text("absent"), state, *seen)
    return table


def show(rows: Sequence[Row], console: "Console", unwanted: Sequence[Unwanted] = ()) -> None:
    """Print the table; who is left out for a plain reason stands below it in a line for each reason."""
    if unwanted or any(not (row.state is State.LEFT_OUT and row.expected) for row in rows):
        console.print(rendered(rows, console.width, unwanted))
    for line in _others(rows):
        console.print(line)
    if console.width < _WIDE and any(row.gain == NOT_MEASURED for row in rows):
        others = " of the others" if any(row.effect for row in rows) else ""
        console.print(_text(f"effect{others}: {NOT_MEASURED}", "dim"))


def _others(rows: Sequence[Row]) -> list["Text"]:
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row.state is State.LEFT_OUT and row.expected:
            why = row.evidence if row.asked != "off" or not row.asked_by else f"`{row.asked_by}`"
            by_reason.setdefault(why, []).append(row.name)
    return [_text(f"not taken: {', '.join(names)} ({printable(why)})", "dim") for why, names in by_reason.items()]


def _text(said: str, style: str) -> "Text":
    from rich.text import Text

    return Text(said, style=style)


def markdown(rows: Sequence[Row], unwanted: Sequence[Unwanted] = ()) -> str:
    """All rows as a table of Markdown."""
    lines = [
        "| speed-up | kind | asked | engaged | evidence | effect here |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        by = f" (`{printable(row.asked_by)}`)" if row.asked_by else ""
        cells = (f"`{row.name}`", row.kind, row.asked + by, row.count, "; ".join(row.details), row.gain)
        lines.append(_of_markdown(*cells))
    lines += [_of_markdown(one.what, "", "absent", one.state, one.evidence, "") for one in unwanted]
    return "\n".join(lines) + "\n"


def _of_markdown(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
