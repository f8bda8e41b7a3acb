"""LOR007: a classifier's new head under an adapter that does not train it."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_HEADS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}


def check(script: Script, project: Project) -> Iterator[Said]:
    loaded = [
        (call, head)
        for call in script.calls_of("from_pretrained")
        for head in _HEADS
        if head in call.name.rpartition(".")[0]
    ]
    causal = any("CausalLM" in call.name for call in script.calls_of("from_pretrained"))
    if not loaded or causal:
        return
    made, head = loaded[0]
    for call in script.calls_of("LoraConfig"):
        kind, kept = call.arguments.get("task_type"), call.arguments.get("modules_to_save")
        value = str(kind.value).rpartition(".")[2] if kind is not None and kind.is_known else ""
        if value != "CAUSAL_LM" or (kept is not None and kept.value) or "**" in call.arguments:
            continue
        yield Finding(
            f"`task_type: CAUSAL_LM` on a model `{head.removeprefix('For')}`: its head is new and random, and"
            f" stays so, since the"
            " adapter leaves it frozen.",
            place=kind.place if kind is not None and kind.place.line else call.place,
            evidence=Evidence(Level.TEXT, {"task_type": value, "model": made.name}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f'Set `task_type="{_HEADS[head]}"`, which trains and saves the head, or `modules_to_save=["score"]`.',
                accuracy="The head is learned.",
            ),
            also=(call.place, made.place),
        )


_SCRIPT = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2.5-0.5B", num_labels=2)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, task_type="{}"))
"""
RULE = Rule(
    code="LOR007",
    name="head-that-stays-random",
    summary="An adapter leaves a classifier's new head frozen.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="PEFT trains and saves the head of a classifier by itself for `SEQ_CLS` and `TOKEN_CLS`. For"
        " `CAUSAL_LM` there is"
        " nothing new to train.",
        why="Adapters learn to please a random head, and the head is not in the adapter's file: loaded again it"
        " is another one.",
        detected="E0: a classifier is loaded, and its `LoraConfig` says `CAUSAL_LM` without `modules_to_save`.",
        proven="`model.print_trainable_parameters()`, and the head's `requires_grad`.",
        deliberate=("The head is trained by code of one's own.",),
        sources=("PEFT's `TaskType` and `PeftModelForSequenceClassification`",),
    ),
    bad=Example({"train.py": _SCRIPT.format("CAUSAL_LM")}, says="stays so"),
    good=Example({"train.py": _SCRIPT.format("SEQ_CLS")}),
)
