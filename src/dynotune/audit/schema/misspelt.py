"""A key that is a known one but for a slip in one of its words, whatever release is asked for.

Of a release that is not the one that was read, a key that nobody knows may simply be older or newer. Not so one of whose
words no key of any trainer has: `lora_droupout` was never anybody's.
"""

import difflib
import functools
from collections.abc import Iterable

from dynotune.audit.schema.shipped import every_key

_SHORT = 4
"""Letters of a word below which another word is as likely as a slip."""

_LIKE = 0.79
"""By `difflib`: a letter too many or too few, or two that changed places, in a word of five or more."""


def misspelt(name: str, known: Iterable[str]) -> str:
    """The key that is meant; empty where each word is one of some trainer's keys, or nothing is near."""
    parts = name.lower().split("_")
    odd = [number for number, part in enumerate(parts) if part and part not in _words()]
    if len(odd) != 1 or len(parts[odd[0]]) < _SHORT:
        return ""
    at = odd[0]
    mine = {key for key in known if key.split("_")[:at] == parts[:at] and key.split("_")[at + 1 :] == parts[at + 1 :]}
    there = {key.split("_")[at]: key for key in mine if len(key.split("_")) > at}
    near = difflib.get_close_matches(parts[at], there, 1, _LIKE)
    if not near or len(near[0]) < _SHORT or near[0] + "s" == parts[at]:
        return ""  # another release may have taken a list where this one takes one
    return there[near[0]]


@functools.cache
def _words() -> frozenset[str]:
    return frozenset(part for key in every_key() for part in key.lower().split("_"))
