"""DPO004: pairs whose sides are the same."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.pairs_that_are_the_same import pairs_that_are_the_same

NEARLY = 0.05
"""Share of pairs that differ in one character from which on it is said."""


def check(project: Project, _: Project) -> Iterator[Said]:
    for data in project.data:
        yield from _of_data(data)
    if project.data:
        return
    named = [*pairs_that_are_the_same(project)]
    if not named:
        yield NotChecked(NONE_OF[Subject.DATA])
    for same in named:
        yield Finding(
            f"Of the first {same.read:,} pairs of `{same.rows.file}`, in {same.many:,} `{same.columns[0]}` and"
            f" `{same.columns[1]}` are the same (the first at line {same.rows.line}), and nothing takes them out: they say"
            " nothing of what is preferred.",
            place=same.place,
            also=(same.rows,),
            evidence=Evidence(Level.RESOLVED, {"same": same.many, "pairs": same.read}),
            stake=Stake(AtStake.CHOICE),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Take them out.",
                effort=Effort.MINUTES,
                accuracy="The loss of a pair with equal sides is ln 2 whatever is learned, and moves averages only.",
                measure="dynotune prepare --config dpo.yaml",
            ),
        )


def _of_data(data: DataFacts) -> Iterator[Said]:
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


_DPO = """from datasets import load_dataset
from trl import DPOConfig, DPOTrainer


def pair(row):
    return {{"prompt": row["ask"], "chosen": row["good"], "rejected": row["bad"]}}


rows = load_dataset("json", data_files="pairs.jsonl", split="train"){}.map(pair)
DPOTrainer("Qwen/Qwen2.5-0.5B", args=DPOConfig(output_dir="out"), train_dataset=rows).train()
"""
_ROWS = '{"ask": "Hi", "good": "Hello!", "bad": "No."}\n{"ask": "Bye", "good": "So long.", "bad": "So long."}\n'
RULE = Rule(
    code="DPO004",
    name="no-preference",
    summary="Pairs whose chosen and rejected side are the same.",
    group=Group.DATA,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Rows with `chosen` equal to `rejected`, as text or after the chat template, or all but a character.",
        why="Their gradient is zero, or about a stray character. They hold accuracies and losses at chance.",
        detected="E1: the ledger of the data. Where none was given, the first rows of a file of pairs that the project's"
        " files name: its columns `chosen` and `rejected`, or those that a function or `rename_columns` makes them of;"
        " nothing is said where a comparison of both stands in the program.",
        proven="`dynotune prepare --config dpo.yaml` counts them with their places.",
        deliberate=("A character is what the preference is about.",),
        sources=("The same checks as `dynotune prepare`",),
    ),
    bad=Example({"train.py": _DPO.format(""), "pairs.jsonl": _ROWS}, says="in 1 `good` and `bad` are the same"),
    good=Example(
        {"train.py": _DPO.format('.filter(lambda row: row["good"] != row["bad"])'), "pairs.jsonl": _ROWS},
    ),
)
