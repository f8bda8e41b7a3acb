"""The ledger: every row and token that was read, and what became of it.

Two equations hold at any time, and `check` asserts them:

    rows:    read + unpacked = used + skipped, by reason
    tokens:  read = used + truncated + in skipped rows

`unpacked` is 0 unless pre-tokenised rows hold several documents: such a row becomes an example for each.
A row of preference data is a pair, whose tokens are those of both sides, each with the prompt.
Rows that never became tokens (they could not be parsed, rendered or given a label) count as rows, with no tokens.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dynotune.data.examples import IGNORE, Example
from dynotune.data.places import Places
from dynotune.data.rows import BadRow, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

Ints = NDArray[np.int64]

PLACES_KEPT = 5
"""How many places of a reason or notice are kept; all of them are counted."""


def count_labels(example: Example) -> int:
    """Label tokens of an example. A label at position 0 has no predecessor: it carries no loss and is not counted."""
    if example.labels_T is example.ids_T:
        return max(0, len(example.ids_T) - 1)
    return int(np.count_nonzero(example.labels_T[1:] != IGNORE))


@dataclass
class Counts:
    """What was read from one source, and what became of it."""

    rows_read: int = 0
    rows_unpacked: int = 0
    """Further documents of packed rows: a row of n documents adds n - 1, and each counts as a row from here on."""

    rows_used: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    tokens_read: int = 0
    tokens_used: int = 0
    tokens_truncated: int = 0
    tokens_skipped: int = 0
    label_tokens: int = 0
    """Tokens that carry loss, among those used."""

    label_tokens_truncated: int = 0
    label_tokens_skipped: int = 0

    def check(self) -> None:
        """Assert both equations."""
        assert self.rows_read + self.rows_unpacked == self.rows_used + self.skipped.total(), self
        assert self.tokens_read == self.tokens_used + self.tokens_truncated + self.tokens_skipped, self
        assert min(self.rows_used, self.tokens_used, self.label_tokens, *self.skipped.values(), 0) == 0, self

    def add(self, more: Counts) -> None:
        """Add the counts of further rows."""
        for one in _COUNTED:
            setattr(self, one, getattr(self, one) + getattr(more, one))
        self.skipped.update(more.skipped)

    @classmethod
    def told(cls, told: Mapping[str, Any]) -> Counts:
        """The counts that `to_json` told of."""
        return Counts(skipped=Counter(told["skipped"]), **{one: int(told[one]) for one in _COUNTED})

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "skipped": dict(self.skipped.most_common())}


_COUNTED = [one.name for one in fields(Counts) if one.name != "skipped"]


class Ledger(Counts):
    """The account of one data set. `sources` holds the same counts for each file."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, Counts] = {}
        self.notices: Counter[str] = Counter()
        """Rows that train although something about them is remarkable, by name."""
        self.faults: Counter[str] = Counter()
        """Whole files that could not be read, or not to their end, by reason. They have no row count."""
        self.places: dict[str, list[str]] = {}
        """The first few places of each reason and notice."""

    def read(self, place: Place, rows: int = 1) -> None:
        """A row came in from its source."""
        for counts in self._of(place.file):
            counts.rows_read += rows

    def use(self, place: Place, examples: Sequence[Example], per_row: int = 1) -> None:
        """A row that was `read` became an example, or several where it held packed documents.

        per_row: documents that a row consists of (2 of a pair), so that rows are counted and not documents."""
        rows = len(examples) // per_row
        n_tokens = sum(len(example.ids_T) for example in examples)
        n_labels = sum(count_labels(example) for example in examples)
        for counts in self._of(place.file):
            counts.rows_unpacked += rows - 1
            counts.rows_used += rows
            counts.tokens_read += n_tokens
            counts.tokens_used += n_tokens
            counts.label_tokens += n_labels

    def refuse(self, bad: BadRow) -> None:
        """A row that was `read`, or a whole file (`bad.place.line is None`), that cannot become an example."""
        self._keep_place(bad.reason, bad.place)
        if bad.place.line is None:
            self.faults[bad.reason] += 1
            return
        for counts in self._of(bad.place.file):
            counts.skipped[bad.reason] += 1

    def leave_out(self, reason: str, place: Place, rows: int = 1) -> None:
        """Rows that were `read` and are not wanted, before they became tokens (`fraction` of a mixture)."""
        if rows == 0:
            return
        self._keep_place(reason, place)
        for counts in self._of(place.file):
            counts.skipped[reason] += rows

    def skip(self, reason: str, places: Places, n_tokens: Ints, n_labels: Ints) -> None:
        """Rows in use are left out after all, with all their tokens: those that are still counted as used. [rows] each."""
        for place in places[:PLACES_KEPT]:
            self._keep_place(reason, place)
        for file, rows in places.by_file():
            tokens, labels = int(n_tokens[rows].sum()), int(n_labels[rows].sum())
            for counts in self._of(file):
                counts.rows_used -= len(rows)
                counts.skipped[reason] += len(rows)
                counts.tokens_used -= tokens
                counts.tokens_skipped += tokens
                counts.label_tokens -= labels
                counts.label_tokens_skipped += labels

    def truncate(self, places: Places, n_tokens: Ints, n_labels: Ints) -> None:
        """`n_tokens` tokens of each of these rows in use are cut off, `n_labels` of them label tokens. [rows] each."""
        for file, rows in places.by_file():
            tokens, labels = int(n_tokens[rows].sum()), int(n_labels[rows].sum())
            for counts in self._of(file):
                counts.tokens_used -= tokens
                counts.tokens_truncated += tokens
                counts.label_tokens -= labels
                counts.label_tokens_truncated += labels

    def use_rows(self, places: Places, n_tokens: Ints, n_labels: Ints) -> None:
        """Rows that were read, and became an example each. [rows] each."""
        for file, rows in places.by_file():
            tokens, labels = int(n_tokens[rows].sum()), int(n_labels[rows].sum())
            for counts in self._of(file):
                counts.rows_read += len(rows)
                counts.rows_used += len(rows)
                counts.tokens_read += tokens
                counts.tokens_used += tokens
                counts.label_tokens += labels

    def notice(self, names: Iterable[str], place: Place) -> None:
        """The row at `place` trains, and each name says what is remarkable about it."""
        for name in names:
            self.notices[name] += 1
            self._keep_place(name, place)

    def merge(self, later: Ledger) -> None:
        """Add the account of rows that follow."""
        self.add(later)
        for file, counts in later.sources.items():
            self.sources.setdefault(file, Counts()).add(counts)
        self.notices.update(later.notices)
        self.faults.update(later.faults)
        for name, places in later.places.items():
            kept = self.places.setdefault(name, [])
            kept += places[: PLACES_KEPT - len(kept)]

    def check(self) -> None:
        """Assert that every row and token is accounted for, in total and for each file."""
        super().check()
        for counts in self.sources.values():
            counts.check()
        for name, total in self._totals().items():
            assert total == sum(getattr(counts, name) for counts in self.sources.values()), name

    def to_json(self) -> dict[str, Any]:
        totals = {**self._totals(), "skipped": dict(self.skipped.most_common())}
        return {
            **totals,
            "notices": dict(self.notices.most_common()),
            "file_faults": dict(self.faults.most_common()),
            "first_places": self.places,
            "sources": {file: counts.to_json() for file, counts in self.sources.items()},
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The ledger that `to_json` told of. Raises `KeyError`, `TypeError` or `ValueError` where it did not."""
        ledger = cls()
        ledger.add(Counts.told(told))
        for file, values in told["sources"].items():
            ledger.sources[file] = Counts.told(values)
        ledger.notices.update(told["notices"])
        ledger.faults.update(told["file_faults"])
        ledger.places = {name: list(places) for name, places in told["first_places"].items()}
        return ledger

    def write(self, path: Path) -> None:
        """Write `ledger.json` whole or not at all."""
        self.check()
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
        beside.replace(path)

    def summary(self, title: str = "data") -> Table:
        """A compact table for the terminal."""
        from dynotune.data.account.summary import ledger_table

        return ledger_table(self, title)

    def _totals(self) -> dict[str, int]:
        return {name: value for name, value in self.__dict__.items() if isinstance(value, int)}

    def _of(self, file: str) -> tuple[Counts, Counts]:
        return self, self.sources.setdefault(file, Counts())

    def _keep_place(self, name: str, place: Place) -> None:
        kept = self.places.setdefault(name, [])
        if len(kept) < PLACES_KEPT:
            kept.append(str(place))
