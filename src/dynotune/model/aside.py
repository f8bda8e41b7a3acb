"""How often the kernels that stand in for modules of a model stepped aside and let the module's own operations answer."""

from collections import Counter


class Aside:
    """One count for all of a kind, so that a step reads it in no time. What steps aside adds to `calls`, or calls `because`
    where it knows why."""

    __slots__ = ("calls", "whys")

    def __init__(self) -> None:
        self.calls = 0
        self.whys = Counter[str]()
        """Reasons that were given, with their calls."""

    def because(self, why: str) -> None:
        self.calls += 1
        self.whys[why] += 1
