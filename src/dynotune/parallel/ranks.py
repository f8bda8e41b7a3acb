"""The processes of a run. One process needs no process group: what ranks do together is then what it does alone."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class Ranks:
    """This process among those of the run. By itself it is the only one, or stands for one of several (a rehearsal)."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    """Among the processes of this machine: the number of the GPU."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run folder and speaks for the run."""
        return self.rank == 0

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is set on any rank. The hosts meet here, once a step; no device is waited for."""
        return flags

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Each parameter's gradient becomes its sum over ranks; a rank without one counts as zeros."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks of a small tensor on the device, without waiting for it."""
        return values

    def gather(self, value: Any) -> list[Any]:
        """Each rank's `value`, by rank, on every rank. Plain JSON values; the hosts wait for each other."""
        return [value]

    def from_first(self, value: Any) -> Any:
        """The first rank's `value`, on every rank. Plain JSON values."""
        return self.gather(value)[0]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """What `tensors` hold on the first rank, they hold on every rank."""

    def leave(self, notice: dict[str, Any]) -> None:
        """Leave this, of plain JSON values, for the first rank, in place of what was left before. Nobody waits."""

    def left(self) -> dict[int, dict[str, Any]]:
        """On the first rank: what others left last, by rank, as far as it has come. Nobody waits."""
        return {}

    @contextmanager
    def one_after_another(self, what: str) -> Iterator[None]:
        """The first rank goes through this block alone, then the others together. However long it takes."""
        yield

    @contextmanager
    def first_alone(self, what: str) -> Iterator[bool]:
        """True on the first rank; the others get False and leave the block when the first one has. However long it takes."""
        yield True

    def at(self, step: int, doing: str) -> None:
        """Progress: this process is at `step` and begins to do this. A process that makes none for too long is hung."""

    def fail(self, error: BaseException) -> bool:
        """This process ends by `error`. True where it is the one to say so: one rank speaks for all."""
        return True

    def close(self) -> None:
        """All is done: leave the group."""
