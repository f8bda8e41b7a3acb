"""Where rows stand, without an object a row: a table of files, and two integers a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self, overload

import numpy as np
from numpy.typing import NDArray

from dynotune.data.rows import Place

NO_LINE = -1
"""In place of a line where a place names a whole file."""


class Places(Sequence[Place]):
    """A sequence of places over `file_numbers` [rows] int32, which index `files`, and `lines` [rows] int64."""

    def __init__(self, files: list[str], file_numbers: NDArray[np.int32], lines: NDArray[np.int64]) -> None:
        assert len(file_numbers) == len(lines)
        self.files, self.file_numbers, self.lines = files, file_numbers, lines

    @classmethod
    def of(cls, places: Iterable[Place]) -> Self:
        table: dict[str, int] = {}
        pairs = [
            (table.setdefault(place.file, len(table)), NO_LINE if place.line is None else place.line)
            for place in places
        ]
        array = np.array(pairs, np.int64).reshape(-1, 2)
        return cls(list(table), array[:, 0].astype(np.int32), array[:, 1].copy())

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, index: int) -> Place: ...
    @overload
    def __getitem__(self, index: slice) -> Places: ...
    def __getitem__(self, index: int | slice) -> Place | Places:
        if isinstance(index, slice):
            return Places(self.files, self.file_numbers[index], self.lines[index])
        line = int(self.lines[index])
        return Place(self.files[int(self.file_numbers[index])], None if line == NO_LINE else line)

    def take(self, rows: NDArray[np.int64]) -> Places:
        """The places at these indices, in this order."""
        return Places(self.files, self.file_numbers[rows], self.lines[rows])

    def renumbered(self, table: dict[str, int]) -> NDArray[np.int32]:
        """`file_numbers` under the numbers of a larger table, to which files that it lacks are added."""
        if not len(self):
            return self.file_numbers
        if len(self.files) == 1:
            return np.full(len(self), table.setdefault(self.files[0], len(table)), np.int32)
        return np.array([table.setdefault(file, len(table)) for file in self.files], np.int32)[self.file_numbers]

    def by_file(self) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Each file that occurs, with the indices of its rows."""
        if not len(self):
            return
        if len(self.files) == 1:
            yield self.files[0], np.arange(len(self))
            return
        order = np.argsort(self.file_numbers, kind="stable")
        starts = np.flatnonzero(np.diff(self.file_numbers[order], prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            yield self.files[int(self.file_numbers[order[start]])], order[start:end]
