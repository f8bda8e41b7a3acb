"""MEM050: a loss of one's own copies all logits to float32."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, per_step, text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_LOGITS = re.compile(r"\blogits\b|_logits\b")
_SMALL = re.compile(
    r"classif|num_labels|reward|score|router|gate|aux|value_head|ForSequence|ForTokenClass", re.IGNORECASE
)


def check(script: Script, project: Project) -> Iterator[Said]:
    near = "\n".join(one.source for one in together(script, project))
    if _SMALL.search(script.source) or not re.search(r"CausalLM|SFTTrainer|DPOTrainer|compute_loss|vocab", near):
        return
    calls = [call for loop in loops(script) for call in loop.calls if call.each_step]
    calls += per_step(script, "compute_loss", "get_batch_loss_metrics")
    calls += [call for call in script.calls if _in_a_loss(call)]
    whole = [call for call in {call.place: call for call in calls}.values() if _copies(script, call)]
    if not whole:
        return
    first, *more = whole
    yield Finding(
        f"`{' '.join(text_at(script, first.place).split())}` makes a second copy of all logits (rows x tokens x"
        f" vocabulary) in"
        " 4 bytes each: 1.2 GiB for every 2,048 tokens of a vocabulary of 152,000, and as much again for gradients.",
        place=first.place,
        evidence=Evidence(Level.TEXT, {"copies": len(whole)}),
        stake=Stake(AtStake.MEMORY, 1.2, None, "arithmetic: 2,048 tokens x 152,000 words x 4 bytes"),
        remedy=Remedy(
            Risk.NUMERIC,
            "Keep the logits that carry loss alone (index by `labels != -100` first), take them in chunks, or let"
            " the model"
            " compute the loss (`model(labels=...)`) with a fused head.",
            effort=Effort.HOURS,
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(call.place for call in more),
    )


def _in_a_loss(call: Call) -> bool:
    """A function of the file's that is named after what it computes from logits."""
    functions = [around.name for around in call.around if around.kind == "function"]
    return any(re.search(r"loss|log_?p(rob)?s?\b", name) and "eval" not in name for name in functions)


def _copies(script: Script, call: Call) -> bool:
    """All of the logits, not a part: `logits.float()`, `F.log_softmax(logits, ...)`."""
    last = call.name.rpartition(".")[2]
    whole = re.compile(r"[\w.]*logits(\[(\.\.\.|:)[^\]]*\])?(\.contiguous\(\))?$")
    if last == "float" and call.on:
        return bool(whole.fullmatch(call.on)) or call.on.endswith(").logits")
    if last == "to" and call.on and bool(whole.fullmatch(call.on)):
        return "float32" in text_at(script, call.place)
    if last in ("log_softmax", "softmax"):
        text = text_at(script, call.place)
        inner = re.match(rf"[\w.]*{last}\(\s*([\w.]+)", text)
        taken = call.on if _LOGITS.search(call.on) else inner[1] if inner else ""
        return bool(_LOGITS.search(taken)) and "gather" in script.source
    return False


_LOSS = """from trl import SFTTrainer
import torch.nn.functional as F


class Mine(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
%s
"""
_BAD = """        logits = model(**inputs).logits
        return F.cross_entropy(logits.float().flatten(0, 1), inputs["labels"].flatten())"""
_GOOD = "        return model(**inputs).loss"
RULE = Rule(
    code="MEM050",
    name="logits-in-float32",
    summary="A loss in the script copies all logits to float32.",
    group=Group.MEMORY,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Logits have a number for each token and word of the vocabulary. They are the largest tensor of the"
        " step, and a"
        " copy in float32 is twice as large as the original in bfloat16.",
        why="It decides how many tokens a micro-batch can have, for tokens that mostly carry no loss.",
        detected="E0: `.float()` of all logits, or a `log_softmax` of them that is gathered from, at every step of"
        " a language"
        " model's training. Parts that are indexed first are not reported.",
        proven="`dynotune profile -- python train.py` shows the peak and what is allocated there.",
        deliberate=("Few tokens are labelled, and indexed before in a way that reading does not see.",),
        sources=("TRL issue 7244: 19.9 GiB with logits, 6.1 GiB with a fused head, 8,192 tokens",),
    ),
    bad=Example({"train.py": _LOSS % _BAD}, says="all logits"),
    good=Example({"train.py": _LOSS % _GOOD}),
)
