"""A row on its way from a file to tokens: where it came from, what it is, and why it may be refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dynotune.printable import printable

Message = dict[str, Any]

Kind = Literal["messages", "prompt_completion", "text", "tokens", "pair"]
"""The normal forms of a row.

`messages`            `messages`: a list of role/content
`prompt_completion`   `prompt` and `completion`, both strings or both lists of messages
`text`                `text`
`tokens`              `input_ids`, optional `labels` and document boundaries
`pair`                `prompt`, `chosen` and `rejected`, all strings or all lists of messages (preference training)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands. Prints as `file:line`, which editors and terminals turn into a link."""

    file: str
    """The file's name, printable: a name can hold escape sequences and bytes that are no UTF-8."""

    line: int | None = None
    """1-based line of a text file, or 1-based row of a table; None where the whole file is meant."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", printable(self.file))

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(slots=True)
class Record:
    """One row as read, before anything is made of it."""

    place: Place
    values: Mapping[str, Any]
    notices: list[str] = field(default_factory=list)
    """Names of what was remarkable but no reason to refuse (`bom-at-start`, `crlf`, ...)."""


@dataclass(slots=True)
class Line:
    """A line of a JSON Lines file that is still to be parsed: by whoever encodes it, which may be another process."""

    place: Place
    raw: bytes
    """Without the space around it."""

    start: int
    """Offset of `raw` in its file, for messages."""

    ended: bool
    """Whether a line end followed."""

    columns: Mapping[str, str] | Sequence[str] | None = None
    """The column names that the row gets once it is parsed (`columns:`)."""


@dataclass(slots=True)
class BadRow:
    """A row, or a whole file (`place.line is None`), that cannot become a training example."""

    place: Place
    reason: str
    """A stable name: `invalid-utf8`, `empty-messages`, `no-labels`, ... It is counted in the ledger by this name."""

    detail: str
    """One sentence for a person: what is wrong, with the value."""

    beginning: str = ""
    """The start of the row, printable: control characters are escaped."""


Found = Record | Line | BadRow
"""What a file holds in the place of one row."""


@dataclass(slots=True)
class Row:
    """A row in normal form."""

    place: Place
    kind: Kind
    messages: list[Message] | None = None
    prompt: str | list[Message] | None = None
    completion: str | list[Message] | None = None
    chosen: str | list[Message] | None = None
    rejected: str | list[Message] | None = None
    text: str | None = None
    tokens: dict[str, Any] | None = None
    """For `kind="tokens"`: the pre-tokenised columns as read."""

    tools: list[Any] | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
