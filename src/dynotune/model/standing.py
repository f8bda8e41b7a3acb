"""What stands in the place of a module's forward."""

from typing import Any

RANGE = "_dynotune_range"
"""Attribute of what a trace puts around a forward for a step: it calls that and changes nothing."""


def stands(there: Any, forward: Any) -> bool:
    """Whether `there`, a module's forward, is `forward`, perhaps with a trace's range around it. Somebody else's wrapper
    may do more."""
    return there is forward or (getattr(there, RANGE, False) and there.__wrapped__ is forward)
