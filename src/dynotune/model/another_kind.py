"""Why a stand-in is not at a module: reasons, those of modules that it is not for among them."""

from collections import Counter
from collections.abc import Mapping


class OfAnotherKind(str):
    """A reason, in words: the module computes something else than what the stand-in is for. Any other reason is one of a
    module that it is for."""

    __slots__ = ()


def by_reason(others: Mapping[str, str]) -> list[str]:
    """Of modules by name, each with a reason, a line a reason: `model.norm and 2 more: a hook watches it`; that of most
    modules first."""
    lines: list[str] = []
    for reason, n in Counter(others.values()).most_common():
        first = next(name for name, why in others.items() if why == reason)
        more = f" and {n - 1} more" if n > 1 else ""
        lines.append(f"{first}{more}: {reason}")
    return lines
