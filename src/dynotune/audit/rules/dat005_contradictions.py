"""DAT005: the same prompt with different answers, or the same pair preferred both ways."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

SOME, FEW = 0.02, 5


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    notices, used = data.ledger.get("notices", {}), data.ledger.get("rows_used") or 1
    for name, what in (
        ("conflicting-answer", "have the prompt of an earlier row and another answer"),
        ("contradicting-pair", "prefer the opposite of an earlier pair"),
    ):
        count = notices.get(name, 0)
        least = 1 if name == "contradicting-pair" else max(FEW, int(SOME * used))
        if count < least:
            continue
        places = data.ledger.get("first_places", {}).get(name, ())
        shown = f", the first at {places[0]}" if places else ""
        yield Finding(
            f"{count:,} of {used:,} rows {what}{shown}.",
            place=data.place,
            evidence=Evidence(Level.RESOLVED, {name: count, "rows": used}),
            stake=Stake(AtStake.CHOICE),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Decide which of them is right, or keep them on purpose.",
                effort=Effort.HOURS,
                measure="dynotune prepare --config sft.yaml",
            ),
        )


RULE = Rule(
    code="DAT005",
    name="contradicting-rows",
    summary="Rows contradict each other.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="Two rows with the same prompt and different answers; two pairs with the same sides, the other one chosen.",
        why="Their gradients pull against each other, and the loss cannot fall below their share.",
        detected=f"E1: hashes of prompts and answers; conflicting answers are said from {SOME:.0%} and {FEW} rows on.",
        proven="`dynotune prepare --config sft.yaml` counts them, with their places.",
        deliberate=("Several good answers to a prompt, or several annotators of a pair.",),
        sources=("The same checks as `dynotune prepare`",),
    ),
)
