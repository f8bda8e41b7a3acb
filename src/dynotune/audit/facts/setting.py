"""One setting of a job: its value, where it stands, and how that is known."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dynotune.audit.place import Place


class Known(StrEnum):
    GIVEN = "given"
    """It stands there literally."""

    FOLLOWED = "followed"
    """Through variables, dictionaries, argparse, other files: `Setting.via` has the trail."""

    DEFAULT = "default"
    """Nobody gives it: the default of the trainer's version that the job was resolved with."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that reading alone cannot tell."""

    why: str
    """The end of a sentence: `it comes from the command line`."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    """In TRL's and transformers' words, whatever the trainer calls it."""

    value: Any
    """In TRL's and transformers' words too: plain values, or `Unknown`."""

    place: Place
    known: Known = Known.GIVEN
    given_as: str = ""
    """The trainer's own name for it. Empty: the same."""

    given_value: Any = None
    """The trainer's own value, where it differs (`flash_attn: fa2`)."""

    via: tuple[Place, ...] = ()
    others: tuple[Any, ...] = ()
    """Other values it may have, by branches or defaults that a command line can replace."""

    @property
    def is_known(self) -> bool:
        return not isinstance(self.value, Unknown)
