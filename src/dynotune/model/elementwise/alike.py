"""Modules that compute the same function of their inputs and weights: what is found of one of them holds for all.

A model has the same norm dozens of times. Each is the same class with the same attributes, so that comparing one with a
kernel compares all; drawing inputs and waiting for results of all 113 modules was a second of each start of a 7B.
"""

from collections.abc import Callable, Collection, Hashable, MutableMapping
from typing import Any, TypeVar

from torch import nn

Found = TypeVar("Found")
Verdicts = MutableMapping[Hashable, Any]
"""What was found, by likeness. Of one model, one device and one precision."""

_BARE = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, children and hooks are looked at by name."""

_HOOKS = tuple(sorted(name for name in _BARE if "hook" in name))


def likeness(module: nn.Module, but: Collection[str] = ()) -> Hashable | None:
    """Equal for two modules whose forward does the same with the same weights; None where nothing says so. Who judges by one
    gives it the weights, or sees that there are none.

    That is their class, their attributes, the shapes and precisions of their parameters and the same of their children,
    but for those that are named in `but`. Objects count as equal that are the same one. Hooks, buffers and forwards of
    their own make a module like no other.
    """
    if "forward" in module.__dict__ or any(module.__dict__.get(name) for name in _HOOKS):
        return None
    if any(buffer is not None for buffer in module._buffers.values()):
        return None
    own = tuple((key, _plain(value)) for key, value in sorted(module.__dict__.items()) if key not in _BARE)
    weights = tuple(
        (name, None if one is None else (type(one), one.shape, one.dtype, one.device, one.requires_grad))
        for name, one in module._parameters.items()
    )
    inside: list[tuple[str, Hashable]] = []
    for name, child in module._modules.items():
        if name in but or child is None:
            inside.append((name, None))
            continue
        like = likeness(child)
        if like is None:
            return None
        inside.append((name, like))
    return type(module), module.training, own, weights, tuple(inside)


def _plain(value: Any) -> Hashable:
    """A value by what it is; anything that could change or hold more, by which object it is."""
    return (type(value), value) if isinstance(value, bool | int | float | str | None) else (type(value), id(value))


def once_for_alike(verdicts: Verdicts | None, like: Hashable | None, judge: Callable[[], Found]) -> Found:
    """What `judge` finds, or found of another one of the same `like`."""
    if verdicts is None or like is None:
        return judge()
    if like not in verdicts:
        verdicts[like] = judge()
    found: Found = verdicts[like]
    return found
