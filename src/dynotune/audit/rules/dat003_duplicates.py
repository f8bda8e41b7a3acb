"""DAT003: rows that stand in the data more than once."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

SOME, FEW = 0.01, 5
"""Share and number of rows from which on it is said."""

SAME = ("exact-duplicate", "duplicate-content", "near-duplicate")


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    notices = data.ledger.get("notices", {})
    found = {name: notices[name] for name in SAME if notices.get(name)}
    repeated, used = sum(found.values()), data.ledger.get("rows_used") or 1
    if repeated < FEW or repeated / used < SOME:
        return
    places = data.ledger.get("first_places", {})
    first = next((str(place) for name in found for place in places.get(name, ())), "")
    shown = f", the first at {first}" if first else ""
    yield Finding(
        f"{repeated:,} of {used:,} rows ({repeated / used:.1%}) repeat an earlier one{shown}.",
        place=data.place,
        evidence=Evidence(Level.RESOLVED, {**found, "rows": used}),
        stake=Stake(AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take them out, or say why they count more than others.",
            effort=Effort.MINUTES,
            accuracy="A repeated row weighs as often as it stands there, and is learned by heart first.",
            measure="dynotune prepare --config sft.yaml",
        ),
    )


RULE = Rule(
    code="DAT003",
    name="duplicate-rows",
    summary="Rows repeat earlier ones.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="The same row, the same content under another id, or the same but for case and spaces.",
        why="Repeated rows weigh more than others and are memorised; time goes into what is known.",
        detected=f"E1: hashes of all rows read; said from {SOME:.0%} and {FEW} rows on.",
        proven="`dynotune prepare --config sft.yaml` counts them, with their places.",
        deliberate=("Rows are repeated to give a kind more weight.",),
        sources=("The same checks as `dynotune prepare`",),
    ),
)
