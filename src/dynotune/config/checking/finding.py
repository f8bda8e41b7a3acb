"""What a check of several keys finds: an error that names them all, or a sentence to say."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel


class Finding(NamedTuple):
    """An error, or a sentence about a key that does nothing (as in TRL, which does not say so)."""

    keys: tuple[str, ...]
    text: str
    is_error: bool = True


Check = Callable[[Any, frozenset[str]], Iterator[Finding]]
"""Takes a configuration with the topics that the check is about, and the keys that its author wrote."""


def changed(config: BaseModel, key: str) -> bool:
    """Whether a key differs from its default. A resolved configuration writes every key out, so that a key is written
    says little about what its author asked for."""
    return bool(getattr(config, key) != type(config).model_fields[key].get_default(call_default_factory=True))


def wrong(text: str, *keys: str) -> Finding:
    """A combination that cannot be carried out."""
    return Finding(keys, text)


def idle(text: str, *keys: str) -> Finding:
    """A key that has no effect beside the others."""
    return Finding(keys, text, is_error=False)
