"""What traced steps showed of all speed-ups of a run, while it goes on. `record` is what the run keeps of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynotune.measure.evidence import Evidence
from dynotune.speedups.expectation import Expectation, Observation
from dynotune.speedups.installed import Installed
from dynotune.speedups.record import Record
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.table import EffectOf
from dynotune.speedups.whole_step import Unwanted


@dataclass(frozen=True, slots=True)
class Proof:
    """The decisions and what was observed of them, at the time of the step."""

    installed: Installed
    evidence: Evidence
    observations: Mapping[str, Observation]
    """Of each that stood when a step was traced, by name; of what was taken out since, the last one."""

    expectations: Mapping[str, Sequence[Expectation]]
    """What the step had to show of them, by name."""

    unwanted: tuple[Unwanted, ...]
    """What the step should not hold, whichever of them stand."""

    def record(self, remembered: Remembered, effect: EffectOf = lambda name: None) -> Record:
        """For engagement.json and the table. effect: what each was measured to gain here."""
        return Record.of(
            self.installed.decisions,
            self.observations,
            self.expectations,
            self.evidence,
            remembered.machine,
            effect,
            self.unwanted,
        )
