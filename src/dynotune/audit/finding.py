"""What a rule says about one place: how it is known, what is at stake in this run, and what to do about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from dynotune.audit.change import Change
from dynotune.audit.place import Place


class Level(IntEnum):
    """How much is known. Rising."""

    TEXT = 0
    """E0: what stands in a file."""

    RESOLVED = 1
    """E1: what a configuration comes to with its defaults, or what data holds."""

    PROBED = 2
    """E2: tried out on this machine."""

    PROFILED = 3
    """E3: seen in a profile or the record of a run."""

    MEASURED = 4
    """E4: measured here in pairs, by `dynotune bench`."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the finding rests on."""

    level: Level
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name, as a reader would check them: `{"real share": 0.31, "rows": 20000}`."""


class AtStake(StrEnum):
    """What goes wrong if nothing is done."""

    RESULT = "result"
    """Another model comes out than was meant."""

    STOPS = "stops"
    """It cannot start, or ends with an error."""

    LOST = "lost"
    """Work or data can be lost."""

    TIME = "time"
    MEMORY = "memory"
    FIGURES = "figures"
    """A figure that is shown means something else than it says."""

    CHOICE = "choice"
    """What is learned depends on it, and it may well be meant so."""

    CLARITY = "clarity"
    """Nothing by itself: a setting does nothing, a file is used by nobody."""


@dataclass(frozen=True, slots=True)
class Stake:
    """What is at stake, as a range where it can be counted."""

    what: AtStake
    low: float | None = None
    high: float | None = None
    """TIME: share of a step's time that goes away (0 to 1). MEMORY: GiB. None: not known in this run."""

    source: str = ""
    """Where the range comes from: a document of the rule's page, a result of the repository, or arithmetic on the facts."""


class Risk(StrEnum):
    """The kind of a remedy."""

    SAFE = "safe"
    """The same mathematics. The only kind that is applied without asking."""

    NUMERIC = "numeric"
    """Intermediates round otherwise."""

    BEHAVIOURAL = "behavioural"
    """Another result: for the user to decide."""

    OPERATIONAL = "operational"
    """Not in the audited files: to install, to free, to set up."""


class Effort(StrEnum):
    LINE = "a line"
    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do."""

    risk: Risk
    text: str
    """An imperative sentence: ``Set `packing_strategy: bfd`.``"""

    changes: tuple[Change, ...] = ()
    """Edits that carry it out; empty where it is for people."""

    effort: Effort = Effort.LINE
    breaks: str = ""
    """What else it may break; empty: nothing that is known."""

    accuracy: str = ""
    """What it may do to the result; empty: nothing."""

    measure: str = ""
    """The command that measures its effect."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `code` is filled in from the rule by whoever runs it."""

    message: str
    """One sentence, with this run's figures, that a reader understands without the rule's page."""

    place: Place
    evidence: Evidence
    stake: Stake
    remedy: Remedy
    also: tuple[Place, ...] = ()
    """Other places that belong to it."""

    code: str = ""
    cause: str = ""
    """Findings of one rule in one file that share it have one cause, and are one where they are many. Empty: its own."""

    deliberate: str = ""
    """A reason seen here for which it may be meant so."""


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A rule could not be checked on one subject."""

    why: str
    """The end of the sentence `could not be checked: ...`."""

    place: Place | None = None
    code: str = ""


class Severity(IntEnum):
    NOTE = 0
    WARNING = 1
    ERROR = 2


WORTH_A_WARNING = {AtStake.TIME: 0.05, AtStake.MEMORY: 1.0}
"""From these on (share of the step, GiB) it is more than a note."""


def severity(stake: Stake) -> Severity:
    """From what is at stake in this run, not from taste."""
    if stake.what in (AtStake.RESULT, AtStake.STOPS):
        return Severity.ERROR
    if stake.what in (AtStake.CLARITY, AtStake.CHOICE):
        return Severity.NOTE
    if stake.what in WORTH_A_WARNING:
        known = [value for value in (stake.low, stake.high) if value is not None]
        return Severity.WARNING if not known or max(known) >= WORTH_A_WARNING[stake.what] else Severity.NOTE
    return Severity.WARNING


Said = Finding | NotChecked
Findings = Sequence[Said]
