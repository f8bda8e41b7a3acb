"""What one traced step showed of all speed-ups of a run: the content of engagement.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.measure.evidence import Evidence
from dynotune.speedups.expectation import Observation, Verdict
from dynotune.speedups.installed import Installed


@dataclass(frozen=True, slots=True)
class Proof:
    """The decisions and what was observed of them, at the time of the step."""

    installed: Installed
    evidence: Evidence
    observations: Mapping[str, Observation]
    """Of each that stood when a step was traced, by name; of what was taken out since, the last one."""

    def summary(self) -> str:
        """In a line."""
        by = {verdict: [n for n, o in self.observations.items() if o.verdict is verdict] for verdict in Verdict}
        said = [f"{len(names)} {verdict}" for verdict, names in by.items() if names]
        return (
            f"step {self.evidence.step} was traced in {self.evidence.seconds:.1f} s beside the step itself: "
            f"{', '.join(said) or 'no speed-up is installed'}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.evidence.step,
            "seconds": self.evidence.seconds,
            "observations": {name: seen.to_json() for name, seen in self.observations.items()},
        }
