"""DAT003: rows that stand in the data more than once, or that an earlier one contradicts."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

SOME, FEW = 0.01, 5
"""Share and number of rows from which on it is said."""

MANY = 0.02
"""Share of rows with another answer to an earlier prompt from which on it is said."""

SAME = ("exact-duplicate", "duplicate-content", "near-duplicate")


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    yield from _repeated(data)
    yield from _contradicted(data)


def _repeated(data: DataFacts) -> Iterator[Said]:
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


def _contradicted(data: DataFacts) -> Iterator[Said]:
    """The same prompt with different answers, or the same pair preferred both ways."""
    notices, used = data.ledger.get("notices", {}), data.ledger.get("rows_used") or 1
    for name, what in (
        ("conflicting-answer", "have the prompt of an earlier row and another answer"),
        ("contradicting-pair", "prefer the opposite of an earlier pair"),
    ):
        count = notices.get(name, 0)
        least = 1 if name == "contradicting-pair" else max(FEW, int(MANY * used))
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
    code="DAT003",
    name="rows-again",
    summary="Rows repeat earlier ones, or contradict them.",
    group=Group.DATA,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="The same row, the same content under another id, or the same but for case and spaces. Two rows with the same"
        " prompt and different answers; two pairs with the same sides, the other one chosen.",
        why="Repeated rows weigh more than others and are memorised; time goes into what is known. Of contradicting ones the"
        " gradients pull against each other, and the loss cannot fall below their share.",
        detected=f"E1: hashes of rows, prompts and answers; repetitions are said from {SOME:.0%} and {FEW} rows on,"
        f" conflicting answers from {MANY:.0%} and {FEW} rows, pairs from the first.",
        proven="`dynotune prepare --config sft.yaml` counts them, with their places.",
        deliberate=(
            "Rows are repeated to give a kind more weight.",
            "Several good answers to a prompt, or several annotators of a pair.",
        ),
        sources=("The same checks as `dynotune prepare`",),
    ),
    formerly=("DAT005",),
    former_names=(
        "contradicting-rows",
        "duplicate-rows",
    ),
)
