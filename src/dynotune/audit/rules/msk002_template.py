"""MSK002: the chat template teaches no end, or not what the messages say."""

from collections.abc import Iterator

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Group, Page, Rule, Subject

WRONG = {
    "end-token-never-trained": "template",
    "end-token-is-not-eos": "template",
    "doubled-bos-in-template": "template",
    "template-strips-reasoning": "reasoning",
    "template-drops-tools": "tools",
    "template-drops-tool-calls": "tools",
}
"""Findings of `data/templates/probe.py` that spoil what is learned. Those on tools count where rows have any."""

ROWS_WITH = {"template-drops-tools", "template-drops-tool-calls", "template-strips-reasoning"}


def check(data: DataFacts, project: Project) -> Iterator[Said]:
    notices = data.ledger.get("notices", {})
    for name, sentence in data.template.get("findings", {}).items():
        if name not in WRONG or (name in ROWS_WITH and not notices.get(name)):
            continue
        rows = notices.get(name)
        concerned = f" It concerns {rows:,} rows." if rows else ""
        yield Finding(
            f"{sentence}{concerned}",
            place=data.place,
            evidence=Evidence(Level.PROBED, {"found": name, "rows": rows, "tokenizer": data.tokenizer}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Mend the template (`chat_template_path`), or set the end token.",
                effort=Effort.MINUTES,
                accuracy="The model is taught what it will be asked for.",
                measure="dynotune prepare --config sft.yaml --show 3",
            ),
        )


RULE = Rule(
    code="MSK002",
    name="template-faults",
    summary="The chat template spoils what is learned.",
    group=Group.CORRECTNESS,
    subject=Subject.DATA,
    check=check,
    page=Page(
        what="A template can leave out the end token, end turns with another token than generation stops at, write the"
        " beginning twice, or drop reasoning, tools and calls.",
        why="None of it stops a run or shows in the loss. A model that is taught no end does not stop.",
        detected="E2: made-up conversations are rendered with the tokenizer's template, and what comes out is compared.",
        proven="`dynotune prepare --config sft.yaml --show 3` prints rows as the model sees them.",
        deliberate=("Reasoning is not to be learned.", "The end is taught by later training."),
        sources=("`data/templates/probe.py`; TRL pull request 5988; LLaMA-Factory and Unsloth issues on masks",),
    ),
)
