"""MSK003: padding is the end token, and a collator masks every padding token: the end is never learned."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

PAD_IS_EOS = re.compile(r"^[^#\n]*\.pad_token(?:_id)?\s*=\s*[\w.]+\.eos_token(?:_id)?\b", re.MULTILINE)
COLLATOR = "DataCollatorForLanguageModeling"

_SCRIPT = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("gpt2")
{pad}
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", bf16=True),
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
"""


def check(script: Script, project: Project) -> Iterator[Said]:
    collators = [
        call
        for call in script.calls_of(COLLATOR)
        if call.name.startswith("transformers.")
        and (mlm := call.arguments.get("mlm") or call.arguments.get("1")) is not None
        and mlm.value is False
    ]
    found = PAD_IS_EOS.search(script.source)
    if not collators or found is None:
        return
    line = script.source.count("\n", 0, found.end()) + 1
    yield Finding(
        f"The padding token is the end token (line {line}), and `{COLLATOR}` takes every padding token out of the loss: the"
        " model is never taught to stop.",
        place=collators[0].place,
        evidence=Evidence(Level.TEXT, {"pad token": "eos token", "collator": COLLATOR}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Pad with a token of its own (`tokenizer.add_special_tokens({'pad_token': '<pad>'})` and resize the embedding),"
            " or use a collator that masks by the attention mask.",
            effort=Effort.MINUTES,
            accuracy="The end token is learned.",
        ),
        also=(Place(script.file, line),),
    )


RULE = Rule(
    code="MSK003",
    name="end-masked-as-padding",
    summary="The end token is masked as padding.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what=f"transformers' `{COLLATOR}` with `mlm=False` copies the ids to labels and sets those that equal the padding"
        " token to -100. Where padding is the end token, all true ends go with it.",
        why="Generation then runs on to its limit.",
        detected="E0: the assignment and the collator in one file.",
        proven="Print `collator([row])['labels']`: the last label of a row is -100.",
        deliberate=("Text is joined into full blocks, where no end is to be predicted.",),
        sources=("transformers' `DataCollatorForLanguageModeling.torch_call`",),
    ),
    bad=Example(
        {"train.py": _SCRIPT.format(pad="tokenizer.pad_token = tokenizer.eos_token")}, says="never taught to stop"
    ),
    good=Example({"train.py": _SCRIPT.format(pad='tokenizer.pad_token = "<|pad|>"')}),
)
