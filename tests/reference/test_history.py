"""Promise: whatever happened to the cache before, a run gets the values of its own pairs by its own backend."""

import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.reference.segments import paths
from tests.reference.pairs import KEY, Reference, damage, many, taken
from tests.reference.test_compute import cache

PAIRS = many(15)
NOISE = 1e-6

BACKENDS = {"usual": 0.0, "close": 3e-7, "far": 1e-3}
"""By how much, relatively, each is off."""

EVENTS = st.one_of(
    st.tuples(st.just("run"), st.sampled_from(sorted(BACKENDS)), st.sets(st.integers(0, 14), min_size=1)),
    st.tuples(st.just("killed"), st.sampled_from(sorted(BACKENDS)), st.integers(0, 14)),
    st.tuples(st.sampled_from(["damaged", "cut", "removed"]), st.integers(0, 99), st.integers(1, 200)),
)


class Killed(Reference):
    """Ends after so many pairs."""

    most = 0

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        if len(self.asked) >= self.most:
            raise KeyboardInterrupt
        return super().__call__(numbers)


@given(st.lists(EVENTS, min_size=1, max_size=12))
@settings(max_examples=20, deadline=None)
def test_any_history(events: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as root:
        for event, which, more in events:
            mine = {"made_by": {"backend": str(which)}, "noise": NOISE, "batch_tokens": 30, "seconds": 0}
            if event == "run":
                numbers = np.array(sorted(more))
                pairs = taken(PAIRS, numbers)
                score = Reference(pairs, off=BACKENDS[which])
                found = cache(Path(root), KEY, **mine).obtain(pairs, score)
                right = score.right(range(len(numbers)))
                assert (np.abs(found.values_PC - right) <= NOISE * np.abs(right)).all()
                again = Reference(pairs, off=BACKENDS[which])
                assert cache(Path(root), KEY, **mine).obtain(pairs, again).computed == 0
                assert again.asked == []
            elif event == "killed":
                killed = Killed(PAIRS, off=BACKENDS[which])
                killed.most = more
                with suppress(KeyboardInterrupt):
                    cache(Path(root), KEY, **mine).obtain(PAIRS, killed)
            elif there := paths(cache(Path(root)).folder):
                path = there[which % len(there)]
                if event == "removed":
                    path.unlink()
                elif event == "damaged":
                    damage(path, -1 - more % path.stat().st_size)
                else:
                    path.write_bytes(path.read_bytes()[: -1 - more % path.stat().st_size])
