"""DPO004: pairs whose sides are the same."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

NEARLY = 0.05
"""Share of pairs that differ in one character from which on it is said."""


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    if data.per_example != 2:
        return
    ledger = data.ledger
    equal, near = ledger.get("skipped", {}).get("chosen-equals-rejected", 0), ledger.get("notices", {})
    nearly = near.get("sides-nearly-equal", 0)
    read = ledger.get("rows_read") or data.rows or 1
    if not equal and nearly < NEARLY * read:
        return
    places = ledger.get("first_places", {}).get("chosen-equals-rejected", ())
    shown = f" (the first at {places[0]})" if places else ""
    parts = [f"in {equal:,} the two sides are the same{shown}"] if equal else []
    if nearly:
        parts.append(f"in {nearly:,} they differ in one character")
    yield Finding(
        f"Of {read:,} pairs, {' and '.join(parts)}: they say nothing of what is preferred.",
        place=data.place,
        evidence=Evidence(Level.RESOLVED, {"same": equal, "nearly the same": nearly, "pairs": read}),
        stake=Stake(AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take them out.",
            effort=Effort.MINUTES,
            accuracy="The loss of a pair with equal sides is ln 2 whatever is learned, and moves averages only.",
            measure="dynotune prepare --config dpo.yaml",
        ),
    )


RULE = Rule(
    code="DPO004",
    name="no-preference",
    summary="Pairs whose chosen and rejected side are the same.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="Rows with `chosen` equal to `rejected`, as text or after the chat template, or all but a character.",
        why="Their gradient is zero, or about a stray character. They hold accuracies and losses at chance.",
        detected="E1: the ledger of the data.",
        proven="`dynotune prepare --config dpo.yaml` counts them with their places.",
        deliberate=("A character is what the preference is about.",),
        sources=("The same checks as `dynotune prepare`",),
    ),
)
