"""What one way of training, SFT or DPO, makes of keys: the rest of a configuration is the same for all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynotune.config.checking.finding import Check
from dynotune.config.fates.fate import Fate

Said = str | None
"""What the user is told about a value that was changed; None if it means the same."""

Rule = Callable[[Any], tuple[Any, Said]]
"""From a value as TRL knows it to the value as it is honoured. Raises ValueError with the reason and the remedy."""


@dataclass(frozen=True)
class Method:
    """The keys of a method's configuration, beside those that it declares."""

    command: str
    """`dynotune <command>`."""

    fates: Mapping[str, Fate]
    """Of TRL's flat keys that it does not declare, and of those that it does."""

    checks: tuple[Check, ...]
    """Of keys that are right alone and wrong together."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    """For values of keys that other methods have, too, with another meaning."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    """What to write instead of other trainers' names, where that is this method's own."""

    without: frozenset[str] = frozenset()
    """Keys of shared topics that have no meaning in it. They have a fate and keep their default."""
