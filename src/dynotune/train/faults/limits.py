"""How many steps that are not finite a run may leave out."""

from dataclasses import dataclass

from dynotune.config.keys.run import RunConfig


@dataclass(frozen=True, slots=True)
class Limits:
    """Steps that may be left out because they were not finite, before the run ends. Zeros: the first one ends it."""

    in_a_row: int = 0
    in_all: int = 0

    @classmethod
    def of(cls, config: RunConfig) -> "Limits":
        if config.on_nonfinite_step == "stop":
            return cls()
        return cls(config.max_consecutive_nonfinite_steps, config.max_nonfinite_steps)

    def exceeded(self, in_a_row: int, in_all: int) -> bool:
        return in_a_row > self.in_a_row or in_all > self.in_all

    @property
    def stops_at_first(self) -> bool:
        return not (self.in_a_row and self.in_all)


def in_a_row(skipped: list[int], step: int) -> int:
    """How many steps up to `step`, itself the last, were skipped one after another."""
    count, gone = 0, set(skipped)
    while step - count in gone:
        count += 1
    return count
