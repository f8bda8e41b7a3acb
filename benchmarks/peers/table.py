"""The README's tables of what was measured beside other trainers, made from the JSON in `benchmarks/results/`.

    python -m benchmarks.peers.table            # writes the README's block
    python -m benchmarks.peers.table --check    # exit code 1 where it would change it

Each line of ours stands beside the fastest arm that any peer had, whatever it did otherwise: that is said. Only what was
measured is listed.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.measured import Measured, all_measured
from benchmarks.peers.published import QUOTES
from benchmarks.peers.rows import ROWS, who
from dynotune.errors import DataError

BEGIN, END = "<!-- peers: begin, by `python -m benchmarks.peers.table` -->", "<!-- peers: end -->"
ROOT = Path(__file__).parents[2]
NAMES = {"trl": "TRL", "unsloth": "Unsloth"}
WIDTH = 125


def block(measured: Sequence[Measured]) -> str:
    """What stands between the marks."""
    parts = []
    for pairs, title in ((False, "SFT"), (True, "DPO")):
        rows = [one for one in measured if ROWS[one.row].pairs == pairs]
        if rows:
            parts.append("\n".join(_table(title, rows)))
    notes = [line for one in measured for line in _notes(one)]
    parts.append(_fill([_spread(measured), *notes, _sources(measured)]))
    parts.append(_fill([_quotes()]))
    return "\n\n".join(parts)


def _table(title: str, rows: Sequence[Measured]) -> list[str]:
    unit = "pairs/s" if title == "DPO" else "real tokens/s"
    lines = [f"| {title}, a step holds | Dynotune | fastest peer | {unit} |", "|---|---|---|---:|"]
    for one in rows:
        name, theirs = next(iter(one.whole(ours=False).items()))
        for ours, arm in one.whole(ours=True).items():
            ratio = arm[one.rate] / theirs[one.rate]
            lines.append(
                f"| {ROWS[one.row].holds}{_manner(ours, '; ')} | {_figures(one, arm)} | {_who(name)}{_manner(name, ' ')}:"
                f" {_figures(one, theirs)} | {ratio:.2f}x |"
            )
    return lines


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
    """The least and the most that a row gained, by our fastest arm."""
    ratios = []
    for one in measured:
        ours, theirs = (next(iter(one.whole(ours=mine).values()))[one.rate] for mine in (True, False))
        ratios.append((ours / theirs, ROWS[one.row].holds))
    (least, where), (most, there) = min(ratios), max(ratios)
    return f"Least: {least:.2f}x ({where}). Most: {most:.2f}x ({there})."


def _sources(measured: Sequence[Measured]) -> str:
    files = list(dict.fromkeys(one.source for one in measured))
    links = ", ".join(f"[{name}](benchmarks/results/{name})" for name in files)
    return f"From {links}: command, commit, versions, spread, losses."


def _quotes() -> str:
    said = "; ".join(f"{q.who}, {q.work}, {q.hardware}: {q.tokens:,} tok/s a GPU" for q in QUOTES)
    return f"Published, not measured here, on other hardware and documents: {said}."


def _fill(sentences: Sequence[str]) -> str:
    """Lines of at most `WIDTH` characters; a link is not broken."""
    lines = [""]
    for word in " ".join(sentences).split():
        if len(lines[-1]) + len(word) + 1 > WIDTH and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def replaced(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with `text` between the marks. Raises `DataError` where it has not each of them once, in order."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise DataError(f"the page needs the lines\n{begin}\n{end}\nonce each, in this order, where the tables go")
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(arguments)
    measured = all_measured(args.results)
    if not measured:
        raise DataError(f"{args.results} has no row with an arm of ours and one of a peer")
    page = args.page.read_text(encoding="utf-8")
    new = replaced(page, block(measured))
    if new == page:
        return 0
    if args.check:
        print(f"{args.page.name} is not what the results say: run python -m benchmarks.peers.table", file=sys.stderr)
        return 1
    args.page.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
