"""Edits of a text as what stands between two offsets instead, so that edits that know nothing of one another go together."""

from collections.abc import Iterable
from dataclasses import dataclass


class NotAppliedError(ValueError):
    """A change that is left to people. The message is the end of the sentence `not changed: ...`."""


@dataclass(frozen=True, slots=True, order=True)
class Splice:
    start: int
    end: int
    text: str


def between(before: str, after: str) -> Splice:
    """What makes one text of the other, in one place."""
    start, most = 0, min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < most - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return Splice(start, len(before) - tail, after[start : len(after) - tail])


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """All of them at once; equal ones count once, insertions at one place follow each other as given.

    Raises `NotAppliedError` where two of them change the same characters.
    """
    parts, last = [], 0
    for one in sorted(dict.fromkeys(splices), key=lambda splice: (splice.start, splice.end)):
        if one.start < last:
            raise NotAppliedError("it changes what another change changes: apply that first, and audit again")
        parts += [text[last : one.start], one.text]
        last = one.end
    return "".join([*parts, text[last:]])
