"""Where something stands in what is audited."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A span of a file. Lines and columns count from 1; 0: the file as a whole."""

    file: str
    """As it was given, or relative to the project's folder, with forward slashes. Empty: no file (the environment)."""

    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    key: str = ""
    """The path of keys in a configuration (`datasets.0.path`), or the name of an argument or flag."""

    cell: str = ""
    """Of a notebook: `cell 3, line 4`. `line` counts through the code of all cells, as `read.python.source` joins them."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        if self.cell:
            where = f"{self.file}, {self.cell}"
        return f"{where} `{self.key}`" if self.key else where


NOWHERE = Place("")
"""No file: the environment, or a default that nobody wrote down."""
