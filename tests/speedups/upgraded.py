"""A package that is installed in another version than before."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dynotune.speedups import remembered


@contextmanager
def upgraded(name: str) -> Iterator[None]:
    """Inside, the package `name` has another version than outside, and all others are as they are."""
    installed_as = remembered.installed_as
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "installed_as", lambda other: "another" if other == name else installed_as(other))
        yield
