"""The ledger as a table for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dynotune.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

    from dynotune.data.account.ledger import Ledger


def ledger_table(ledger: Ledger, title: str) -> Table:
    """Rows and tokens, then each reason for a row left out, then each notice with its first places."""
    from rich.table import Table
    from rich.text import Text

    # A held-out set has the name that the configuration gives it.
    table = Table(
        title=Text(printable(title)),
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=True,
        header_style="bold",
    )
    table.add_column("", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("tokens", justify="right")
    table.add_column("label tokens", justify="right")
    table.add_column("first places", overflow="fold")

    def line(name: str, rows: int | None, tokens: int | None = None, labels: int | None = None, key: str = "") -> None:
        numbers = ["" if n is None else f"{n:,}" for n in (rows, tokens, labels)]
        # Text, not str: a file name may hold what rich would take for markup.
        table.add_row(Text(name, no_wrap=True), *numbers, Text(_places(ledger, key)))

    labels = ledger.label_tokens + ledger.label_tokens_truncated + ledger.label_tokens_skipped
    line("read", ledger.rows_read, ledger.tokens_read, labels)
    if ledger.rows_unpacked:
        line("unpacked", ledger.rows_unpacked)
    line("used", ledger.rows_used, ledger.tokens_used, ledger.label_tokens)
    if ledger.tokens_truncated:
        line("truncated", None, ledger.tokens_truncated, ledger.label_tokens_truncated)
    if ledger.tokens_skipped:
        line("in skipped rows", None, ledger.tokens_skipped, ledger.label_tokens_skipped)
    for reason, count in ledger.skipped.most_common():
        line(f"skipped: {reason}", count, key=reason)
    for reason, _ in ledger.faults.most_common():
        line(f"file: {reason}", None, key=reason)
    for name, count in ledger.notices.most_common():
        line(f"notice: {name}", count, key=name)
    return table


def _places(ledger: Ledger, key: str) -> str:
    places = ledger.places.get(key, [])[:3]
    if len(ledger.sources) == 1:
        lines = [place.rpartition(":")[2] for place in places if ":" in place]
        return f"line {', '.join(lines)}" if lines else ""
    return ", ".join(printable(Path(place).name) for place in places)
