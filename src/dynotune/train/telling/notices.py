"""What each rank of a run sees of itself, brought to the first one, which says it: signs, and figures of its machine.

No rank waits for it: a thread that runs anyway carries it every half second, and at the end of the run the ranks meet once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dynotune.measure.signs.record import Sign
from dynotune.parallel.ranks import Ranks
from dynotune.parallel.watchdog import ranks_named

FIGURES = (
    "gpu/utilisation", "gpu/sm_mhz", "gpu/celsius", "peak_memory_gib", "memory/headroom_gib", "data_wait", "host/rss_gib",
)  # fmt: skip
"""Of a row, of which the least and the most of all ranks stand in the first one's."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A sign that another rank saw."""

    rank: int
    step: int
    sign: Sign


class Notices:
    """Of one rank."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.signs: list[dict[str, Any]] = []
        """That this rank saw, as plain values."""

        self.said: set[str] = set()
        """Names of signs that the terminal has had."""

        self._figures: dict[str, float] = {}
        self._heard: set[tuple[int, str]] = set()

    def sign(self, step: int, sign: Sign) -> None:
        """This rank saw one."""
        self.signs.append({"step": step, **asdict(sign)})
        self._leave()

    def row(self, row: Mapping[str, Any]) -> dict[str, float]:
        """`ranks/<figure>_min` and `_max` by each rank's latest row, on the first rank; nothing while only it is known."""
        if self.ranks.world == 1:
            return {}
        self._figures = {name: float(row[name]) for name in FIGURES if row.get(name) is not None}
        self._leave()
        every = [self._figures, *(left.get("figures", {}) for left in self.ranks.left().values())]
        found: dict[str, float] = {}
        for name in FIGURES if self.ranks.is_first else ():
            values = [one[name] for one in every if name in one]
            if len(values) > 1:
                key = f"ranks/{name.replace('/', '_')}"
                found |= {f"{key}_min": min(values), f"{key}_max": max(values)}
        return found

    def news(self) -> list[Heard]:
        """On the first rank: what others saw that was not heard of before. Nobody is waited for."""
        return self._new({rank: left.get("signs", []) for rank, left in self.ranks.left().items()})

    def rest(self) -> list[Heard]:
        """The same at the end of the run, where all ranks meet: nothing is missed."""
        every = self.ranks.gather(self.signs)
        return self._new({rank: signs for rank, signs in enumerate(every) if rank}) if self.ranks.is_first else []

    def _new(self, signs: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[Heard]:
        found = []
        for rank, told in sorted(signs.items()):
            for one in told:
                if (rank, one["name"]) not in self._heard:
                    self._heard.add((rank, one["name"]))
                    found.append(Heard(rank, one["step"], Sign(one["name"], one["figure"], one["remedy"])))
        return found

    def _leave(self) -> None:
        if not self.ranks.is_first:
            self.ranks.leave({"signs": list(self.signs), "figures": self._figures})


def by_name(heard: Sequence[Heard]) -> list[tuple[str, Heard]]:
    """Each sign once, with the ranks that saw it in words, and the first one's figure."""
    of: dict[str, list[Heard]] = {}
    for one in heard:
        of.setdefault(one.sign.name, []).append(one)
    return [(ranks_named([one.rank for one in same]), same[0]) for same in of.values()]
