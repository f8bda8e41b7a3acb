"""What stands in the place of a module's forward."""

from collections.abc import Callable
from typing import Any

from torch import nn

RANGE = "_dynotune_range"
"""Attribute of what a trace puts around a forward for a step: it calls that and changes nothing."""


def stands(there: Any, forward: Any) -> bool:
    """Whether `there`, a module's forward, is `forward`, perhaps with a trace's range around it. Somebody else's wrapper
    may do more."""
    return there is forward or (getattr(there, RANGE, False) and there.__wrapped__ is forward)


def stands_by_itself(module: nn.Module, forward: Callable[..., Any]) -> bool:
    """Whether what a call of `module` runs is its class's `forward`, with a trace's range around it at most: what a step
    does must not change by being looked at."""
    there = vars(module).get("forward")
    if there is None:
        return type(module).forward is forward
    if not getattr(there, RANGE, False):
        return False
    while getattr(there, RANGE, False):
        there = there.__wrapped__
    return getattr(there, "__func__", None) is forward and there.__self__ is module
