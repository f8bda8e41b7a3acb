"""The registry: every speed-up there is. Each file of `declared/` registers its own; so may any other code."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Mapping
from typing import TypeVar

from dynotune.speedups.contract import Kind, Speedup

Declaration = TypeVar("Declaration", bound=type[Speedup])

_REGISTERED: dict[str, Speedup] = {}
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def register(declaration: Declaration) -> Declaration:
    """Class decorator: add a speed-up, once a process. Raises `ValueError` for a declaration that breaks the contract."""
    one = declaration()
    if not _NAME.fullmatch(one.name):
        raise ValueError(f"a speed-up's name is in snake_case, not {one.name!r}")
    if one.name in _REGISTERED:
        raise ValueError(f"there is a speed-up named {one.name!r} already")
    if one.default == "auto" and one.kind is not Kind.EXACT:
        raise ValueError(f"{one.name}: `auto` is for exact speed-ups, and this one is {one.kind}")
    _REGISTERED[one.name] = one
    return declaration


def unregister(name: str) -> None:
    """Take one out again. For tests and notebooks that declare one twice."""
    del _REGISTERED[name]


def speedups() -> Mapping[str, Speedup]:
    """All by name, in the order of installation."""
    _load_declared()
    return dict(sorted(_REGISTERED.items(), key=lambda item: (item[1].order, item[0])))


def switches() -> list[str]:
    """The names of those that `speedups:` can set."""
    return [name for name, one in speedups().items() if not one.follows]


@functools.cache
def _load_declared() -> None:
    from dynotune.speedups import declared

    for module in pkgutil.iter_modules(declared.__path__):
        importlib.import_module(f"{declared.__name__}.{module.name}")
