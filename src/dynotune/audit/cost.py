"""What findings cost in this run: seconds an epoch where the run's time is known, their order, and what all of them
together could save at most.

Gains are never summed: shares of a step that overlap would be counted twice.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.finding import AtStake, Finding, Level, Risk, severity

SKIPPED = 2
"""First rows of a run, which hold compiling, are left out of its time a step."""

ORDER = (
    AtStake.RESULT,
    AtStake.STOPS,
    AtStake.LOST,
    AtStake.TIME,
    AtStake.MEMORY,
    AtStake.FIGURES,
    AtStake.CHOICE,
    AtStake.CLARITY,
)
_RISKS = tuple(Risk)


@dataclass(frozen=True, slots=True)
class Cost:
    """The run that findings are counted in. None: not known."""

    epoch_seconds: float | None = None
    source: str = ""
    """Where that comes from."""

    def seconds(self, finding: Finding) -> tuple[float, float] | None:
        """Of an epoch, that go away at least and at most; None where time is not at stake, or the run's is not known."""
        share = shares(finding)
        if share is None or self.epoch_seconds is None:
            return None
        return share[0] * self.epoch_seconds, share[1] * self.epoch_seconds


def shares(finding: Finding) -> tuple[float, float] | None:
    """Of a step's time that goes away, at least and at most; None where that cannot be said."""
    stake = finding.stake
    known = [value for value in (stake.low, stake.high) if value is not None]
    if stake.what is not AtStake.TIME or not known:
        return None
    low = stake.low if stake.low is not None else 0.0
    return max(0.0, min(low, 1.0)), max(0.0, min(max(known), 1.0))


def together(findings: Iterable[Finding]) -> float | None:
    """The share of a step's time that goes away at most if all of these are mended; None where none says a share.

    Each takes its share of what the others leave, and each rule counts once, a profile's by each of its names: never
    their sum. What changes the result is not in it.
    """
    by_rule: dict[tuple[str, str], float] = {}
    for finding in findings:
        share = shares(finding)
        if share is not None and finding.remedy.risk is not Risk.BEHAVIOURAL:
            named = (finding.code, finding.place.key if finding.evidence.level is Level.PROFILED else "")
            by_rule[named] = max(by_rule.get(named, 0.0), share[1])
    if not by_rule:
        return None
    left = 1.0
    for value in by_rule.values():
        left *= 1.0 - value
    return 1.0 - left


def in_order(findings: Sequence[Finding], cost: Cost) -> tuple[Finding, ...]:
    """Wrong before slow; among what is slow, most seconds first; then by risk and place."""

    def key(finding: Finding) -> tuple[Any, ...]:
        stake = finding.stake
        size = (cost.seconds(finding) or shares(finding) or (0.0, 0.0))[1]
        if stake.what is AtStake.MEMORY:
            size = max(stake.low or 0.0, stake.high or 0.0)
        return (
            ORDER.index(stake.what),
            -severity(stake),
            -size,
            _RISKS.index(finding.remedy.risk),
            finding.code,
            finding.place,
        )

    return tuple(sorted(findings, key=key))


def cost_of(project: Project) -> Cost:
    """From a record of the run: the profile's time a step, or the logged rows of a run folder."""
    for run in project.runs:
        seconds = _step_seconds(run)
        steps = _steps_an_epoch(run)
        if seconds is not None and steps is not None:
            return Cost(seconds * steps, f"{run.folder}: {seconds:.3g} s a step, {steps:.0f} steps an epoch")
    return Cost()


def _step_seconds(run: RunFacts) -> float | None:
    """The median of the logged rows (Dynotune); else the whole run's time by its steps (transformers' last row)."""
    values = [row["seconds_per_step"] for row in run.metrics if isinstance(row.get("seconds_per_step"), int | float)]
    if values:
        return float(statistics.median(values[SKIPPED:] or values))
    for row in reversed(run.metrics):
        step, seconds = row.get("step"), row.get("train_runtime")
        if isinstance(step, int) and step > 0 and isinstance(seconds, int | float):
            return seconds / step
    return None


def _steps_an_epoch(run: RunFacts) -> float | None:
    steps = run.plan.get("steps_per_epoch")
    if isinstance(steps, int | float):
        return float(steps)
    for row in reversed(run.metrics):
        step, epoch = row.get("step"), row.get("epoch")
        if isinstance(step, int) and isinstance(epoch, int | float) and epoch > 0:
            return step / epoch
    return None
