"""What a profile found, as findings of rules: each rule takes those of its names."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Check

if TYPE_CHECKING:  # they load PyTorch, and rules are listed without it
    from dynotune.profile.findings import Finding as Found
    from dynotune.profile.findings import Findings
    from dynotune.profile.record import Record

RISKS = {
    "exact": Risk.SAFE,
    "numeric": Risk.NUMERIC,
    "behavioural": Risk.BEHAVIOURAL,
    "operational": Risk.OPERATIONAL,
}
"""By the profile's kinds of remedies."""

NO_REMEDY = "See which lines and kernels have it with `dynotune profile`; nothing that always helps is known."


def analysed(record: "Record") -> "Findings":
    """Worked out once for all rules."""
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
    from dynotune.profile.analyse import analyse

    return analyse(same.record)


def seen(*names: str, what: AtStake = AtStake.TIME) -> Check:
    """A check for what the profile calls by these names. what: at stake where it costs no time that was seen."""

    def check(record: "Record", project: Project) -> Iterator[Said]:
        found = analysed(record)
        for one in found.found:
            if one.name in names:
                yield _finding(one, found.step_seconds, what)

    return check


def _share(one: "Found", step: float) -> float | None:
    """Of a step's time, at most; by the remedy's ceiling, which knows what step that is."""
    if one.seconds <= 0 or step <= 0:
        return None
    if one.remedy is not None and one.remedy.ceiling >= 1:
        return 1 - 1 / one.remedy.ceiling
    return min(1.0, one.seconds / step)


def _finding(one: "Found", step: float, what: AtStake) -> Finding:
    share = _share(one, step)
    stake = Stake(AtStake.TIME, 0.0, share, "this profile") if share is not None else Stake(what)
    text, risk, measure = NO_REMEDY, Risk.OPERATIONAL, ""
    if one.remedy is not None:
        setting = f": `{one.remedy.setting}`" if one.remedy.setting else ""
        first = f" To measure it, {one.remedy.first}." if one.remedy.first else ""
        text = f"{one.remedy.text[:1].upper()}{one.remedy.text[1:]}{setting}.{first}"
        risk, measure = RISKS[one.remedy.kind], one.remedy.command
    facts = {"seconds of a step": one.seconds, "step": step}
    sentence = f"{one.sentence[:1].upper()}{one.sentence[1:].rstrip('.')}."
    return Finding(sentence, NOWHERE, Evidence(Level.PROFILED, facts), stake, Remedy(risk, text, measure=measure))
