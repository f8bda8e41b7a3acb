"""Why a stand-in is not at a module where nobody would expect it."""


class OfAnotherKind(str):
    """A reason, in words: the module computes something else than what the stand-in is for. Any other reason is one of a
    module that it is for."""

    __slots__ = ()
