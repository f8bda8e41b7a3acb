"""MSK004: a run whose loss is zero or not a number."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Group, Page, Rule, Subject

FEW = 3
"""Logged steps from which on it is said."""


def check(run: RunFacts, project: Project) -> Iterator[Said]:
    rows = [row for row in run.metrics if "loss" in row]
    zero = [row for row in rows if row["loss"] == 0 and row.get("grad_norm", 0) in (0, None)]
    broken = [row for row in rows if _broken(row.get("loss")) or _broken(row.get("grad_norm"))]
    if len(zero) >= FEW:
        yield _finding(
            run, rows, zero, "a loss and a gradient of zero: no token carries loss there, or nothing is trained"
        )
    if broken:
        yield _finding(run, rows, broken, "a loss or gradient that is no number: what is trained after it may be lost")


def _broken(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in ("nan", "inf", "-inf", "infinity")
    return isinstance(value, float) and not math.isfinite(value)


def _finding(run: RunFacts, rows: list[Mapping[str, Any]], found: list[Mapping[str, Any]], what: str) -> Finding:
    first = found[0].get("step")
    return Finding(
        f"{len(found):,} of {len(rows):,} logged steps (the first: {first}) have {what}.",
        place=Place(run.folder),
        evidence=Evidence(Level.PROFILED, {"steps": len(found), "first": first, "logged": len(rows)}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Look at rows with their labels (`dynotune prepare --config sft.yaml --show 3`), then at rate and precision.",
            effort=Effort.MINUTES,
        ),
    )


RULE = Rule(
    code="MSK004",
    name="nothing-learned",
    summary="Logged steps with a loss of zero, or that is no number.",
    group=Group.CORRECTNESS,
    subject=Subject.RUN,
    check=check,
    page=Page(
        what="A loss of exactly zero with a gradient of zero means that every label of the step was masked. NaN means that"
        " something overflowed, or was divided by no labels.",
        why="The run goes on, and looks alive. transformers replaces NaN in its log by the running average unless"
        " told not to"
        " (`logging_nan_inf_filter`), so some are not seen at all.",
        detected=f"E3: the log of the run; zeros are said from {FEW} logged steps on.",
        proven="The log itself.",
        deliberate=("A synthetic task that was learned perfectly.",),
        sources=("Unsloth issues 946, 1290, 2117: all labels masked; Axolotl issue 3453",),
    ),
)
