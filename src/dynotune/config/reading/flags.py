"""The words after a flag, read by the type of its key. The command-line library has split them before."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from dynotune.config.fates.legacy import RENAMED
from dynotune.config.reading.forms import accepts
from dynotune.config.secrets import is_secret, masked


class Words(tuple[str, ...]):
    """The words that followed a flag on a command line."""

    __slots__ = ()


def from_words(model: type[BaseModel], key: str, words: Sequence[str]) -> Any:
    """One value from the words after a flag: none (a switch), one, several (a list), or `name=value` (a mapping).

    Raises:
        ValueError: a value is missing, or there are more words than the key takes.
    """
    field = model.model_fields.get(RENAMED.get(key, key))
    if field is None:
        # Another trainer's key, or one that is superseded or refused: its fate needs no type.
        return True if not words else words[0] if len(words) == 1 else list(words)
    takes = accepts(field.annotation)
    if not words:
        if takes.boolean:
            return True
        raise ValueError("a value is missing")
    if takes.mapping and not words[0].lstrip().startswith(("{", "[")) and all("=" in word for word in words):
        return dict(word.split("=", 1) for word in words)
    if len(words) == 1:
        # On a command line nothing else could unset a text that the file sets.
        return None if takes.none and words[0] == "null" else words[0]
    if takes.list:
        return list(words)
    if takes.mapping:
        raise ValueError(
            f"write `name=value` for each entry, or one mapping: `'{{name: value}}'`; got {len(words)} words"
        )
    listed = "" if is_secret(key) else f": {masked(' '.join(words))}"
    raise ValueError(f"it takes one value, and {len(words)} were given{listed}")
