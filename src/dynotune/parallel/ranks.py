"""The processes of a run. One process needs no process group: what ranks do together is then what it does alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    world: int = 1

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
