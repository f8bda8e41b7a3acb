"""What is remarkable about a pair besides what is about each of its sides."""

from collections.abc import Iterator

from dynotune.data.checks.view import View
from dynotune.data.rows import Message


def pair_notices(chosen: View, rejected: View) -> Iterator[str]:
    """Names of all that is remarkable about a pair that trains."""
    one, other = _answer(chosen), _answer(rejected)
    if one != other and _all_but_a_character(one, other):
        # Often a clean-up that went over one side. It is a weak preference, and not a wrong one.
        yield "sides-nearly-equal"


def _answer(side: View) -> str:
    last: Message = side.turns[-1]
    return str(last.get("content") or "")


def _all_but_a_character(one: str, other: str) -> bool:
    """Whether one text becomes the other by adding, removing or replacing one character, or by space around it."""
    if one.strip() == other.strip():
        return True
    if abs(len(one) - len(other)) > 1:
        return False
    shorter, longer = sorted((one, other), key=len)
    at = next((index for index, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    return shorter[at + 1 :] == longer[at + 1 :] or shorter[at:] == longer[at + 1 :]
