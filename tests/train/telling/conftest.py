"""A watch and what it tells."""

from collections.abc import Iterator

import pytest

from dynotune.measure.signs.record import Sign
from dynotune.train.telling.watch import Watch


@pytest.fixture
def heard() -> Iterator[tuple[Watch, list[Sign]]]:
    told: list[Sign] = []
    watch = Watch(lambda step, sign: told.append(sign))
    watch.begin()
    yield watch, told
    watch.end()
