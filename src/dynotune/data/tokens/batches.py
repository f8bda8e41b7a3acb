"""Rows in batches, one of which is rendered while the one before it is tokenised in another thread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from dynotune.data.rows import Message, Row

R = TypeVar("R")

CHUNK_ROWS = 256
CHUNK_CHARACTERS = 2_000_000
"""Rows rendered while the rows before them are tokenised in another thread."""


def batches_of(rows: Sequence[Row]) -> Iterator[list[int]]:
    """The indices of each batch."""
    chunk: list[int] = []
    characters = 0
    for index, row in enumerate(rows):
        chunk.append(index)
        characters += _characters(row)
        if len(chunk) >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _characters(row: Row) -> int:
    """Roughly how much text a row holds."""
    messages: Iterable[Message] = row.messages or ()
    return len(row.text or "") + sum(len(str(message.get("content") or "")) for message in messages)


class Here(Executor):
    """Does at once what it is given."""

    def submit(self, function: Callable[..., R], /, *given: Any, **named: Any) -> Future[R]:
        done: Future[R] = Future()
        done.set_result(function(*given, **named))
        return done
