"""What a word in a flag, a comment or a file means: a code, a family or a name, of today or of the past."""

import functools
import re
from enum import Enum

from dynotune.audit.registry import WITHDRAWN, heirs, rules
from dynotune.audit.rule import FAMILIES

_CODE_OR_FAMILY = re.compile(r"[A-Za-z]{3}([0-9]{3})?")


class Past(Enum):
    """Why a word that once was a rule is none today."""

    PART_OF_ANOTHER = "part of another"
    GONE = "gone"


def spelt(word: str) -> str:
    """As rules spell it: codes and families in capitals, names in small letters."""
    return word.upper() if _CODE_OR_FAMILY.fullmatch(word) else word.lower()


@functools.cache
def meant_by(word: str) -> frozenset[str]:
    """Codes of the rules that it means; empty where there is none, or none any more."""
    word = spelt(word)
    word = heirs().get(word, word)
    return frozenset(
        code for code, rule in rules().items() if word in (code, rule.name) or (word == code[:3] and word in FAMILIES)
    )


@functools.cache
def past_of(word: str) -> Past | None:
    """Whether it was a rule once; None: it is one, or a family, or it never was."""
    word = spelt(word)
    if word in heirs():
        return Past.PART_OF_ANOTHER
    return Past.GONE if word in WITHDRAWN or word in WITHDRAWN.values() else None


def is_known(word: str) -> bool:
    """Whether it is a rule or a family, or was a rule."""
    return bool(meant_by(word)) or past_of(word) is not None or spelt(word) in FAMILIES
