"""What a profile says: rows of time, what was found, what would help, what to expect. Data only; `analyse.py` makes it."""

from dataclasses import dataclass
from enum import StrEnum

from dynotune.measure.kernel_classes import IDLE, Work

BEATEN = 0.98
"""Times its floor below which work took less than it can: so much is no doubt of a clock."""


class Kind(StrEnum):
    """What a remedy does to the result. The first three are those of speed-ups."""

    EXACT = "exact"
    NUMERIC = "numeric"
    BEHAVIOURAL = "behavioural"
    OPERATIONAL = "operational"
    """It changes the machine, the driver or how data reach it; never what is computed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One class of work, per step."""

    work: Work
    seconds: float
    share: float
    """Of the step."""

    floor: float | None = None
    """Seconds that the same work takes at least on this device; None where that is not known. Idle time has the floor 0."""

    covered: float = 0.0
    """Share of the class's time for whose operators a floor is known; the floor is scaled to all of it."""

    @property
    def beaten(self) -> bool:
        """Whether the work took less than its floor: then that was measured under other settings, and compares nothing."""
        return self.work not in IDLE and self.floor is not None and self.seconds < BEATEN * self.floor

    @property
    def above(self) -> float:
        """Seconds above the floor; all of an idle class, and 0 where no floor is known."""
        if self.work in IDLE:
            return self.seconds
        return max(0.0, self.seconds - self.floor) if self.floor is not None else 0.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that may help, and how to find out whether it does."""

    name: str
    """Of the finding or the speed-up that it comes from."""

    text: str
    """What to do, as an imperative."""

    kind: Kind
    setting: str
    """As it is written (`speedups.compiled_layers=on`); empty where no setting does it."""

    command: str
    """What measures it; empty where none of ours can."""

    saves: float
    """Seconds of a step that it can save at most."""

    ceiling: float
    """Step before over step after, at most: by the share that it touches in this profile."""

    certain: bool = False
    """Whether `saves` is predicted from rates that were measured, and not just a bound."""

    first: str = ""
    """What is to be done before `command` measures it; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that holds the run back, or will not do what was asked."""

    name: str
    """In kebab-case, stable: `slow-loader`."""

    sentence: str
    """What was seen, with its figure."""

    seconds: float
    """Of a step, at stake; 0 where it is no matter of time."""

    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """How fast such a run can be."""

    tokens_per_second: float
    """Real ones, a device."""

    what: str
    """Where it comes from, in words, with the file that was measured."""

    share: float
    """What this run reaches of it."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is shown."""

    title: str
    """The operating point, in a line."""

    step_seconds: float
    """Of a step as it was timed without the profiler, for the work that was traced: the rows add up to it."""

    rows: tuple[Row, ...]
    """Largest first; classes of no time are left out. Empty without a trace."""

    bottleneck: str
    found: tuple[Finding, ...]
    """Dearest first."""

    remedies: tuple[Remedy, ...]
    """The largest ceiling first. Empty: nothing worth doing was found."""

    placement: tuple[str, ...]
    cannot_know: tuple[str, ...]
    ruled_out: tuple[str, ...] = ()
    """What would be a remedy by its ceiling, and was measured to gain nothing on such a GPU in such steps."""

    hidden_communication: float = 0.0
    """Seconds of a step that ran behind other work; not in the rows."""

    tokens_per_second: float | None = None
    """Real, of all devices, over the whole timed window."""

    fill: float | None = None
    floor_tokens_per_second: float | None = None
    """If every class ran at its floor and nothing was idle; None where a floor is missing for what matters."""

    expected: Expected | None = None
    no_expectation: str = ""
    """Why `expected` is None."""

    steps: int = 0
    spread: float | None = None
    """Of the timed steps' pace: half the middle half's width over the median."""

    profiler_slowdown: float | None = None
    """Traced step over timed step, by the same work."""

    idle_within_trace: float | None = None
    """Seconds of a traced step, by its own clock, in which the device had nothing to do, with the profiler's delays of the
    host; None without a device's time line. The rows' idle time is of the steps that were timed without the profiler."""

    unknown_kernels: tuple[tuple[str, float], ...] = ()
    """Names that no rule knows, with their seconds a step, longest first."""

    memory: str = ""
    warm_up: str = ""
    kernels: tuple[tuple[str, Work, float, int], ...] = ()
    """The longest: name, class, seconds and count a step."""

    on_device: bool = True
    """Whether the time line is a GPU's; else it is that of the host's operators."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found that holds the run back."""
        return not self.found
