"""Tables and lines before they look like anything: text and what it means, for a terminal, Markdown or a page to draw.

Text of others is escaped by whoever makes them.
"""

from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """What a figure or a line means, for those who see colours: words always say it too."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    DOUBT = "doubt"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. The first column names a row, the others are figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]
    spare: tuple[int, ...] = ()
    """Columns that a narrow terminal may leave out, the first to go first."""
