"""What must be seen in a traced step where a speed-up runs, what must be absent, and the verdict.

Expectations are data, so that the same ones are judged on a GPU by kernels, on the CPU by operators, in the table, in the
documentation and in the tests' planted lies.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dynotune.measure.evidence import Evidence, Phase


@dataclass(frozen=True, slots=True)
class Expected:
    """Events that must be there."""

    what: str
    """In words: `RMSNorm kernel`."""

    phase: Phase
    kernels: tuple[str, ...] = ()
    """Regular expressions of kernel names: on a GPU one of them must be found. Empty: operators are the evidence there
    too, and a GPU must have launched something."""

    operators: tuple[str, ...] = ()
    """Regular expressions of operators and autograd functions: the evidence on the CPU. Empty: there is none on the CPU."""

    at: tuple[str, ...] = ()
    """Modules, by name, at each of which it must be seen in every micro-batch. Empty: anywhere in the step."""

    each: int = 1
    """How often at least, at each place in each micro-batch; without places: in the step."""


@dataclass(frozen=True, slots=True)
class Absent:
    """What must not be seen."""

    what: str
    """In words: `dense attention mask`."""

    found: Callable[[Evidence], str | None]
    """What of it was seen, in words; None where nothing was."""


@dataclass(frozen=True, slots=True)
class Holds:
    """A fact of the plan, of memory or of counters that must hold."""

    what: str
    test: Callable[[Evidence], bool | None]
    """None: the evidence does not say."""


Expectation = Expected | Absent | Holds


class Verdict(StrEnum):
    """The four answers."""

    ENGAGED = "engaged"
    PARTIAL = "partial"
    NOT_ENGAGED = "not engaged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a traced step says of one speed-up."""

    verdict: Verdict
    seen: int
    """Places where it was seen in every micro-batch, forward and backward, as far as either is expected."""

    of: int
    """Places where it must be."""

    evidence: str
    """In a line: which kernels or operators, how many, in what share of which time."""

    missing: tuple[str, ...] = ()
    """Places where it was not, by name, each with the phase that lacks it where only one does."""

    against: tuple[str, ...] = ()
    """What speaks against it: what must be absent and was seen, facts that do not hold."""

    @property
    def count(self) -> str:
        """`28 of 28`."""
        return f"{self.seen} of {self.of}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, seen: dict[str, Any]) -> "Observation":
        """From what `to_json` gave, through a file or another rank."""
        return cls(
            **{
                **seen,
                "verdict": Verdict(seen["verdict"]),
                "missing": tuple(seen["missing"]),
                "against": tuple(seen["against"]),
            }
        )
