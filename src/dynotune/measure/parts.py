"""What a stretch of time went to, by named parts: at any moment one is going on, the innermost."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

SHARE = 0.03
"""Of the whole, below which a part is not told by itself."""


class Parts:
    """Seconds by part. A part inside another is taken out of that; one that comes again is added."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._within: list[float] = []
        """Of each part that is open, seconds of those inside of it."""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Inside, `name` is going on; an error ends it, too."""
        began = self._clock()
        self._within.append(0.0)
        try:
            yield
        finally:
            whole = self._clock() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + whole - self._within.pop()
            if self._within:
                self._within[-1] += whole


def in_words(seconds: Mapping[str, float], whole: float) -> str:
    """`activation memory 2.9 s, fused_lora 1.2 s, the rest 0.4 s`: the longest first. whole: seconds of all there was."""
    told = [(name, took) for name, took in seconds.items() if took >= SHARE * whole]
    told.sort(key=lambda one: -one[1])
    told.append(("the rest", max(0.0, whole - sum(took for _, took in told))))
    return ", ".join(f"{name} {took:.1f} s" for name, took in told)
