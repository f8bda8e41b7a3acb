"""The order in which to apply what was found: what is wrong first, then by risk, each step with what measures it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dynotune.audit.cost import Cost, in_order
from dynotune.audit.finding import AtStake, Finding, Risk

WRONG = (AtStake.RESULT, AtStake.STOPS, AtStake.LOST, AtStake.FIGURES)


class When(StrEnum):
    REPAIR = "First: what stops, loses work, trains something else than is written, or shows wrong figures"
    SAFE = "Then the same mathematics, faster or in less memory"
    SET_UP = "Then what is to set up outside of these files"
    NUMERIC = "Then what rounds otherwise: one at a time, each measured, losses compared"
    TIDY = "At leisure: what has no effect"
    DECIDE = "For you to decide: another result"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, wherever it is to be done."""

    code: str
    text: str
    findings: tuple[Finding, ...]
    by_fix: bool = False
    """Whether `--fix` does it, in every place."""

    @property
    def measures(self) -> str:
        """The command that measures its effect; empty where nothing is to be measured."""
        return next((one.remedy.measure for one in self.findings if one.remedy.measure), "")


@dataclass(frozen=True, slots=True)
class Phase:
    when: When
    steps: tuple[Step, ...]


def when(finding: Finding) -> When:
    if finding.remedy.risk is Risk.BEHAVIOURAL:
        return When.DECIDE
    if finding.stake.what in WRONG:
        return When.REPAIR
    if finding.stake.what in (AtStake.CLARITY, AtStake.CHOICE):
        return When.TIDY
    return {Risk.SAFE: When.SAFE, Risk.NUMERIC: When.NUMERIC, Risk.OPERATIONAL: When.SET_UP}[finding.remedy.risk]


def phases(findings: Sequence[Finding], cost: Cost, refused: Sequence[Finding] = ()) -> tuple[Phase, ...]:
    """In order; phases without a step are left out. The same remedy of one rule in several places is one step.

    refused: findings whose safe changes `--fix` does not make.
    """
    steps: dict[When, dict[tuple[str, str], list[Finding]]] = {one: {} for one in When}
    for finding in in_order(findings, cost):
        steps[when(finding)].setdefault((finding.code, finding.remedy.text), []).append(finding)
    return tuple(
        Phase(one, tuple(Step(code, text, tuple(of), _by_fix(of, refused)) for (code, text), of in found.items()))
        for one, found in steps.items()
        if found
    )


def _by_fix(findings: Sequence[Finding], refused: Sequence[Finding]) -> bool:
    return all(one.remedy.risk is Risk.SAFE and one.remedy.changes and one not in refused for one in findings)
