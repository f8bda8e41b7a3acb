"""Rows in batches, one of which is rendered while the one before it is tokenised in another thread."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from dynotune.data.rows import Row
from dynotune.data.tokens.pairs import is_other_side

R = TypeVar("R")

CHUNK_ROWS = 256
CHUNK_CHARACTERS = 2_000_000
"""Rows rendered while the rows before them are tokenised in another thread."""


def batches_of(rows: Sequence[Row]) -> Iterator[list[int]]:
    """The indices of each batch. Both sides of a pair are in one batch: their prompt is tokenised once."""
    chunk: list[int] = []
    characters = 0
    for index, row in enumerate(rows):
        chunk.append(index)
        characters += _characters(row)
        full = len(chunk) >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS
        if full and not (index + 1 < len(rows) and is_other_side(row, rows[index + 1])):
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _characters(row: Row) -> int:
    """Roughly how much text a row holds."""
    total = 0
    for part in (row.text, row.messages, row.prompt, row.completion, row.chosen, row.rejected):
        if isinstance(part, str):
            total += len(part)
        elif part is not None:
            total += sum(len(str(message.get("content") or "")) for message in part)
    return total


class Here(Executor):
    """Does at once what it is given."""

    def submit(self, function: Callable[..., R], /, *given: Any, **named: Any) -> Future[R]:
        done: Future[R] = Future()
        done.set_result(function(*given, **named))
        return done
