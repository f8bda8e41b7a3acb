"""How often the kernels that stand in for modules of a model stepped aside and let the module's own operations answer."""


class Aside:
    """One count for all of a kind, so that a step reads it in no time. What steps aside adds to `calls`."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0
