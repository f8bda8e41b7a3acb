"""An edit of an audited file, in terms of settings; who carries it out keeps comments and layout."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dynotune.audit.place import Place


class Edit(StrEnum):
    SET = "set"
    """Give `name` the value `value`, replacing what stands there."""

    REMOVE = "remove"
    RENAME = "rename"
    """Call `name` `to`; the value stays."""


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of one setting: a key of a YAML, JSON or TOML file, an argument in Python, a flag in a shell script."""

    edit: Edit
    place: Place
    """Of the setting where it stands already; else of what shall hold it: the mapping, the call, the command."""

    name: str
    """As the file has it."""

    value: Any = None
    """A plain value."""

    to: str = ""
