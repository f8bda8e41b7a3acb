"""The README's tables of what was measured beside other trainers, made from the JSON in `benchmarks/results/`.

    python -m benchmarks.peers.table            # writes the README's block
    python -m benchmarks.peers.table --check    # exit code 1 where it would change it

Each line of ours stands beside the fastest arm that any peer had, whatever it did otherwise: that is said. Only what was
measured is listed, and the column is headed for whom that was: where only TRL was, it is no fastest of all peers. What is
known of others stands below, quoted, with what is otherwise.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.pages import filled, replaced
from benchmarks.peers.measured import Measured, all_measured
from benchmarks.peers.published import BASELINE, EARLIER, QUOTES, Earlier
from benchmarks.peers.rows import ROWS, who
from dynotune.errors import DataError

BEGIN, END = "<!-- peers: begin, by `python -m benchmarks.peers.table` -->", "<!-- peers: end -->"
NAMES = {"trl": "TRL", "unsloth": "Unsloth"}


def block(measured: Sequence[Measured]) -> str:
    """What stands between the marks."""
    parts = []
    for pairs, title in ((False, "SFT"), (True, "DPO")):
        rows = [one for one in measured if ROWS[one.row].pairs == pairs]
        if rows:
            parts.append("\n".join(_table(title, rows, _heading(measured))))
    notes = [line for one in measured for line in _notes(one)]
    parts.append(filled(_spread(measured), *notes, _sources(measured)))
    parts.append(filled(*_earlier(measured)))
    parts.append(filled(_quotes()))
    return "\n\n".join(parts)


def _heading(measured: Sequence[Measured]) -> str:
    """What the column of peers holds: the best that was found of whom was measured."""
    peers = sorted({_who(name) for one in measured for name in one.whole(ours=False)})
    return f"{peers[0]}'s best that we found" if len(peers) == 1 else f"faster of {' and '.join(peers)}"


def _table(title: str, rows: Sequence[Measured], heading: str) -> list[str]:
    unit = "pairs/s" if title == "DPO" else "real tokens/s"
    lines = [f"| {title}, a step holds | Dynotune | {heading} | {unit} |", "|---|---|---|---:|"]
    for one in rows:
        name, theirs = next(iter(one.whole(ours=False).items()))
        for ours, arm in one.whole(ours=True).items():
            ratio = arm[one.rate] / theirs[one.rate]
            lines.append(
                f"| {ROWS[one.row].holds}{_manner(ours, '; ')} | {_figures(one, arm)} | {_who(name)}{_manner(name, ' ')}:"
                f" {_figures(one, theirs)}{_another_way(one.row, theirs['ms_per_step'])} | {ratio:.2f}x |"
            )
    return lines


def _another_way(row: str, ms: float) -> str:
    """What a peer took for a row in another run, where that was less than in the one that we made. ms: of a step there."""
    found = [one for one in EARLIER if one.row == row and one.ms < ms]
    return "".join(f" ({one.ms:,} ms with {one.work} in another run, below)" for one in found)


def _figures(one: Measured, arm: Mapping[str, Any]) -> str:
    rate = f"{arm[one.rate]:.1f} pairs/s" if ROWS[one.row].pairs else f"{arm[one.rate]:,.0f} tok/s"
    before = f", {arm['set_up_seconds']:.0f} s before the first step" if "set_up_seconds" in arm else ""
    return f"{arm['ms_per_step']:,.0f} ms, {rate}, {arm['peak_gib']:.0f} GiB{before}"


def _who(name: str) -> str:
    return NAMES.get(who(name), who(name))


def _manner(name: str, before: str) -> str:
    """What the name of an arm says behind whose it is: `fa2 + Liger, 8 x 2048`; nothing for the one way that we have."""
    manner = name.removeprefix(who(name)).lstrip(":, ").removeprefix("tuned").lstrip(":, ")
    return f"{before}{manner}" if manner not in ("", "packed") else ""


def _notes(one: Measured) -> list[str]:
    """In what the arm of a peer does something else, and which arms did not fit."""
    fastest = next(iter(one.whole(ours=False)))
    arm = ROWS[one.row].arms.get(fastest)
    said = [f"In {ROWS[one.row].holds}, the peer has {arm.note}."] if arm and arm.note else []
    if names := one.out_of_memory():
        said.append(f"{ROWS[one.row].holds}: out of memory: {', '.join(_who(n) + _manner(n, ' ') for n in names)}.")
    return said


def _spread(measured: Sequence[Measured]) -> str:
    """The least and the most that a row gained, by our fastest arm, and the least as a run comes where that is less."""
    ratios, as_it_comes = [], []
    for one in measured:
        ours, theirs = (one.whole(ours=mine) for mine in (True, False))
        best = next(iter(theirs.values()))[one.rate]
        ratios.append((next(iter(ours.values()))[one.rate] / best, ROWS[one.row].holds))
        as_it_comes += [(ours["dynotune"][one.rate] / best, ROWS[one.row].holds)] if "dynotune" in ours else []
    (least, where), (most, there) = min(ratios), max(ratios)
    said = f"Least: {least:.2f}x ({where}). Most: {most:.2f}x ({there})."
    if as_it_comes and min(as_it_comes)[0] < least:
        lower, here = min(as_it_comes)
        said += f" As a run comes, without what a line names: least {lower:.2f}x ({here})."
    return said


def _sources(measured: Sequence[Measured]) -> str:
    files = list(dict.fromkeys(one.source for one in measured))
    links = ", ".join(f"[{name}](benchmarks/results/{name})" for name in files)
    return f"From {links}: command, commit, versions, spread, losses."


def _earlier(measured: Sequence[Measured]) -> list[str]:
    """Rows of the baseline: other ways of a row that is listed, and those that nobody measured beside ours."""
    listed = {one.row for one in measured}
    others = [_quoted(one) for one in EARLIER if not one.row]
    ways = [f"{ROWS[one.row].holds}, {_quoted(one)}" for one in EARLIER if one.row in listed]
    return [
        "Measured in another run, on other documents, and not beside ours, so that no ratio is made of it"
        f" (our baseline of {BASELINE}): {'; '.join([*others, *ways])}."
    ]


def _quoted(one: Earlier) -> str:
    return f"{one.who}, {one.work}: {one.ms:,} ms, {one.tokens:,} tok/s"


def _quotes() -> str:
    said = "; ".join(f"{q.who}, {q.work}, {q.hardware}: {q.tokens:,} tok/s a GPU" for q in QUOTES)
    return f"Published, not measured here, on other hardware and documents: {said}."


def made(results: Path, page: Path) -> dict[Path, str]:
    """The page with its tables. Raises `DataError` where there is nothing to compare."""
    measured = all_measured(results)
    if not measured:
        raise DataError(f"{results} has no row with an arm of ours and one of a peer")
    return {page: replaced(page.read_text(encoding="utf-8"), block(measured), BEGIN, END)}


def main(arguments: Sequence[str] | None = None) -> int:
    return pages.main("benchmarks.peers.table", __doc__, made, arguments)


if __name__ == "__main__":
    sys.exit(main())
