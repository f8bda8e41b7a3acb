"""Several data sets as one: TRL's `datasets:` with its `fraction`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.config.keys.data import DataConfig, DatasetEntry
from dynotune.data.account.ledger import Ledger
from dynotune.data.rows import BadRow, Found
from dynotune.data.sources.columns import with_columns
from dynotune.data.sources.locate import Location, Source, open_splits
from dynotune.data.sources.splits import choose_split, slice_rows
from dynotune.errors import ConfigError

OUTSIDE = "outside-fraction"
"""Ledger: a row of a data set beyond its share of the mixture."""


@dataclass
class Part:
    """One data set of a mixture, with the number of rows that is taken of it (None: all)."""

    entry: DatasetEntry
    source: Source
    bounds: str | None
    rows: int | None = None

    def __iter__(self) -> Iterator[Found]:
        yield from slice_rows(self.source, self.bounds, self.source.count)

    def count(self) -> int:
        return sum(not (isinstance(row, BadRow) and row.place.line is None) for row in self)

    @property
    def statement(self) -> str:
        asked = f", {self.entry.split}" if self.bounds else ""
        taken = "" if self.rows is None else f", its first {self.rows:,} rows (fraction {self.entry.fraction:g})"
        return f"{self.source.statement}{asked}{taken}"


def open_mixture(config: DataConfig) -> list[Part]:
    """The data sets of `config.datasets`. No row is read; `share_out` tells how many of each are taken."""
    parts: list[Part] = []
    for number, entry in enumerate(config.datasets):
        location = Location(entry.path, entry.name, entry.data_dir, entry.data_files)
        source, bounds = choose_split(open_splits(location), entry.split, entry.path, f"datasets[{number}].split")
        parts.append(Part(entry, source, bounds))
    fractions = [part.entry.fraction for part in parts]
    given = [fraction for fraction in fractions if fraction is not None]
    if not given:
        return parts
    if len(given) < len(parts):
        without = next(part.entry.path for part in parts if part.entry.fraction is None)
        raise ConfigError(
            f"datasets: `fraction` is given for some data sets and not for {without}. Give it for all or for none."
        )
    whole = sum(given)
    if whole == 0:
        raise ConfigError("datasets: every `fraction` is 0, so the mixture would hold no rows. Give one above 0.")
    return parts


def share_out(parts: list[Part]) -> None:
    """Work out how many rows are taken of each data set. Reads them all, to count them.

    With `fraction`, shares are normalised to sum to one; the mixture has the largest size at which no data set is asked
    for more rows than it has; each gives its first rows. (TRL's meaning: `trl.get_dataset`.)
    """
    given = [part.entry.fraction for part in parts if part.entry.fraction is not None]
    if not given:
        return
    whole = sum(given)
    weights = [fraction / whole for fraction in given]
    size = min(part.count() / weight for part, weight in zip(parts, weights, strict=True) if weight > 0)
    for part, weight in zip(parts, weights, strict=True):
        part.rows = round(weight * size)


def mixture_rows(parts: list[Part], config: DataConfig, ledger: Ledger) -> Iterator[Found]:
    """The rows of all parts one after the other, columns renamed. Rows beyond a share are accounted for in `ledger`."""
    share_out(parts)
    for part in parts:
        columns = config.columns if part.entry.columns is None else part.entry.columns
        taken = 0
        for row in part:
            is_row = not (isinstance(row, BadRow) and row.place.line is None)
            if part.rows is not None and is_row and taken >= part.rows:
                ledger.read(row.place)
                ledger.leave_out(OUTSIDE, row.place)
                continue
            taken += is_row
            yield with_columns(row, columns)
