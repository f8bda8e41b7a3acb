"""A page in one HTML file: sections of paragraphs, tables, pictures and folded parts. What they say is the caller's.

No scripts and nothing to load, so that it can be sent to somebody and opened anywhere; light or dark as the reader's system
is. Text is escaped by the template; a picture must have escaped its own.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dynotune._version import __version__
from dynotune.errors import ConfigError
from dynotune.printable import printable
from dynotune.show.colours import variables
from dynotune.show.grids import Grid, Line

if TYPE_CHECKING:
    from jinja2 import Template

_FIGURE = re.compile(r"[-+±]?[\d.,]+(e-?\d+)?x?( ?%| GiB)?( [\[(].*| of [\d,]+)?|\d+/\d+")

NO_FIGURE = "\N{EM DASH}"

_NONE = {"", NO_FIGURE, "not comparable", "out of memory", "failed", "not measured", "no such arm"}
"""What stands where a figure would."""

MOSTLY = 0.7
"""Share of a column's cells that makes it one of figures."""


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True, slots=True)
class Lines:
    """A paragraph each."""

    lines: tuple[Line, ...]
    kind: ClassVar[str] = "lines"


@dataclass(frozen=True, slots=True)
class Lead:
    """What a reader should take away."""

    text: str
    kind: ClassVar[str] = "lead"


@dataclass(frozen=True, slots=True)
class Banner:
    """What a reader must not miss."""

    text: str
    kind: ClassVar[str] = "banner"


@dataclass(frozen=True, slots=True)
class Code:
    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True, slots=True)
class Picture:
    svg: str
    """Of `dynotune.report`: its texts are escaped."""

    caption: str
    kind: ClassVar[str] = "picture"


@dataclass(frozen=True, slots=True)
class Table:
    grid: Grid
    kind: ClassVar[str] = "table"

    def numbers(self) -> list[bool]:
        """Of each column, whether it holds figures, which stand to the right."""
        return [self._is_number(column) for column in range(len(self.grid.head))]

    def _is_number(self, column: int) -> bool:
        cells = [text for row in self.grid.rows if (text := row[column].text) not in _NONE]
        figures = sum(_FIGURE.fullmatch(text) is not None for text in cells)
        return column > 0 and figures > MOSTLY * len(cells)

    def without_empty(self) -> "Table":
        """The same without columns that hold nothing."""
        grid = self.grid
        kept = [i for i in range(len(grid.head)) if i == 0 or any(row[i].text for row in grid.rows)]
        rows = tuple(tuple(row[i] for i in kept) for row in grid.rows)
        return Table(Grid(grid.title, tuple(grid.head[i] for i in kept), rows))


@dataclass(frozen=True, slots=True)
class Fold:
    """Shown when it is opened; needs no script."""

    title: str
    parts: "tuple[Part, ...]"
    kind: ClassVar[str] = "fold"


Part = Heading | Lines | Lead | Banner | Code | Picture | Table | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """One run or one bench."""

    title: str
    parts: tuple[Part, ...]


def render(title: str, sections: Sequence[Section], above: Sequence[Part] = ()) -> str:
    """The whole file. Several sections stand side by side where the window is wide enough. above: what is said of all."""
    from markupsafe import Markup

    template, style = _template()
    return template.render(
        title=title,
        sections=[_ready(section) for section in sections],
        above=[_marked(part) for part in above],
        style=Markup(variables() + "\n" + style),  # noqa: S704  (our own file)
        version=__version__,
    )


def write_page(target: Path, text: str) -> None:
    """Whole or not at all. Raises `ConfigError`."""
    half = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8", errors="replace")
        half.replace(target)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise ConfigError(
            f"{printable(str(target))} cannot be written: {error.strerror}. Name another `--output`."
        ) from error


def _ready(section: Section) -> Section:
    return Section(section.title, tuple(_marked(part) for part in section.parts))


def _marked(part: Part) -> Part:
    """Pictures pass the template unescaped; tables lose what is empty."""
    from markupsafe import Markup

    if isinstance(part, Table):
        return part.without_empty()

    if isinstance(part, Picture):
        return Picture(Markup(part.svg), part.caption)  # noqa: S704  (drawn by `dynotune.report`, text escaped there)
    if isinstance(part, Fold):
        return Fold(part.title, tuple(_marked(inner) for inner in part.parts))
    return part


@cache
def _template() -> "tuple[Template, str]":
    from importlib.resources import files

    from jinja2 import Environment, StrictUndefined

    folder = files("dynotune.show") / "templates"
    source = (folder / "page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source), (folder / "page.css").read_text(encoding="utf-8")
