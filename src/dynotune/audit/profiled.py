"""What a profile found, as findings of one rule: each has the profile's name for it as its key."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

if TYPE_CHECKING:  # they load PyTorch, and rules are listed without it
    from dynotune.profile.analysis.findings import Finding as Found
    from dynotune.profile.analysis.findings import Findings
    from dynotune.profile.records.record import Record

RISKS = {
    "exact": Risk.SAFE,
    "numeric": Risk.NUMERIC,
    "behavioural": Risk.BEHAVIOURAL,
    "operational": Risk.OPERATIONAL,
}
"""By the profile's kinds of remedies."""

NO_REMEDY = "See which lines and kernels have it with `dynotune profile`; nothing that always helps is known."


def analysed(record: "Record") -> "Findings":
    """Worked out once for the rule and the bottleneck."""
    return _analysed(_Same(record))


class _Same:
    """A record by its identity: its arrays cannot be hashed."""

    def __init__(self, record: "Record") -> None:
        self.record = record

    def __hash__(self) -> int:
        return id(self.record)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.record is self.record


@functools.lru_cache(maxsize=1)
def _analysed(same: _Same) -> "Findings":
    from dynotune.profile.analysis.analyse import analyse

    return analyse(same.record)


MEMORY = frozenset({"allocator-retries"})
"""What costs memory where it costs no time that was seen."""


def seen(record: "Record", project: Project) -> Iterator[Said]:
    """All of it, whatever it is called: a name that is new loses nothing."""
    found = analysed(record)
    for one in found.found:
        yield _finding(one, found.step_seconds)


def _share(one: "Found", step: float) -> float | None:
    """Of a step's time, at most; by the remedy's ceiling, which knows what step that is."""
    if one.seconds <= 0 or step <= 0:
        return None
    if one.remedy is not None and one.remedy.ceiling >= 1:
        return 1 - 1 / one.remedy.ceiling
    return min(1.0, one.seconds / step)


def _finding(one: "Found", step: float) -> Finding:
    share, what = _share(one, step), AtStake.MEMORY if one.name in MEMORY else AtStake.TIME
    stake = Stake(AtStake.TIME, 0.0, share, "this profile") if share is not None else Stake(what)
    text, risk, measure = NO_REMEDY, Risk.OPERATIONAL, ""
    if one.remedy is not None:
        setting = f": `{one.remedy.setting}`" if one.remedy.setting else ""
        first = f" To measure it, {one.remedy.first}." if one.remedy.first else ""
        text = f"{one.remedy.text[:1].upper()}{one.remedy.text[1:]}{setting}.{first}"
        risk, measure = RISKS[one.remedy.kind], one.remedy.command
    facts = {"seconds of a step": one.seconds, "step": step}
    sentence = f"{one.sentence[:1].upper()}{one.sentence[1:].rstrip('.')}."
    return Finding(
        sentence, Place("", key=one.name), Evidence(Level.PROFILED, facts), stake, Remedy(risk, text, measure=measure)
    )
