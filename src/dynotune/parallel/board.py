"""What ranks tell each other beside their collectives: where each one is, that one failed, that the first is done.

It lies in the store of the process group, which under torchrun belongs to the launcher and so outlives every rank. Nothing
here waits: a rank that hangs must not make others hang.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch.distributed as dist

MOVES = 0.5
"""Seconds between two beats of a process that lives."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Where a rank is. `count` goes up while its process lives."""

    count: int
    step: int
    doing: str
    seconds: float
    """For how long, on its own clock."""

    patient: bool = False
    """Whether this may take however long."""

    meeting: bool = False
    """Whether it waits for other ranks."""

    notices: int = 0
    """How many it has left so far."""

    def __str__(self) -> str:
        where = f"at step {self.step}" if self.step else "before the first step"
        return f"{where}, in {self.doing}" if self.doing else where


class Board:
    """One rank's access. Safe in several threads. Raises `RuntimeError` where the store is gone."""

    def __init__(self, store: Any, name: str, rank: int, world: int) -> None:
        """store: a `torch.distributed.Store`. name: of this group among those that this process joins one after another."""
        self._store: Any = dist.PrefixStore(name, store)  # type: ignore[attr-defined]
        self.rank, self.world = rank, world

    def post(self, beat: Beat) -> None:
        self._store.set(f"beat/{self.rank}", json.dumps(asdict(beat)))

    def beats(self) -> list[Beat | None]:
        """Of every rank; None for one that never posted."""
        return [None if text is None else Beat(**text) for text in (self._read(f"beat/{r}") for r in range(self.world))]

    def leave(self, notice: dict[str, Any]) -> None:
        """In place of the one before."""
        self._store.set(f"notice/{self.rank}", json.dumps(notice))

    def left_by(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] | None = self._read(f"notice/{rank}")
        return found or {}

    def claim_failure(self, told: dict[str, Any]) -> bool:
        """Put down why this rank ends, unless another one has; True where this one is the first."""
        mine = json.dumps({"rank": self.rank, **told})
        return bool(self._store.compare_set("failure", "", mine) == mine.encode())

    def failure(self) -> dict[str, Any] | None:
        """Why the first rank to end did."""
        found: dict[str, Any] | None = self._read("failure")
        return found

    def set_done(self, name: str) -> None:
        self._store.set(f"done/{name}", "true")

    def is_done(self, name: str) -> bool:
        return self._read(f"done/{name}") is not None

    def silent(self, looks: int = 12) -> list[int]:
        """Ranks whose beat does not move in so many looks, two for each beat: they were killed, or stopped. What holds up
        the whole machine takes one of the looks and no more, however long it lasts."""
        before = self.beats()
        for _ in range(looks):
            time.sleep(MOVES / 2)
            after = self.beats()
            still = [r for r in range(self.world) if r != self.rank and after[r] == before[r]]
            if not still:
                break
        return still

    def _read(self, key: str) -> Any:
        return json.loads(self._store.get(key)) if self._store.check([key]) else None


@cache
def meeting_point(rank: int) -> Any:
    """The store at which all ranks meet: torchrun's, or one that the first rank keeps as long as its process lives."""
    kept_by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return connection(keeps=rank == 0 and not kept_by_launcher)


def connection(*, keeps: bool = False) -> Any:
    """A connection of its own to that store: what waits in one holds nothing else up. `keeps`: the store lives here."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, is_master=keeps, wait_for_workers=False
    )
