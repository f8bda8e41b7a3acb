"""LOR007: a classifier's new head, or new tokens' embeddings, under an adapter that does not train them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_HEADS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _head(script)
        yield from _tokens_of_a_script(script, project)
    for job in project.jobs:
        yield from _tokens_of_axolotl(job)


def _tokens_of_axolotl(job: Job) -> Iterator[Said]:
    added = given(job, "tokens") if job.trainer is Trainer.AXOLOTL and adapters(job) else None
    if added is None or not isinstance(added.value, list) or not added.value:
        return
    trained = [given(job, name) for name in ("lora_modules_to_save", "lora_target_modules")]
    trains = [str(one.value) for one in trained if one is not None]
    by_row = given(job, "peft_trainable_token_indices") or given(job, "unfrozen_parameters")
    if by_row is not None or any(_EMBEDDING.search(one) for one in trains):
        return
    what = f"`tokens` adds {len(added.value)} token{'s' * (len(added.value) > 1)}"
    remedy = "Set `lora_modules_to_save: [embed_tokens, lm_head]`."
    yield _of_tokens(what, remedy, added.place, job.place("use_peft"))


_EMBEDDING = re.compile(r"emb|wte", re.IGNORECASE)
"""What an embedding is called among modules: `embed_tokens`, `word_embeddings`, `wte`."""

_ADDS = re.compile(r"\.add_tokens\(|additional_special_tokens|extra_special_tokens")
_TRAINS = re.compile(
    r"trainable_token_indices|get_(?:in|out)put_embeddings\(\)[^\n]*requires_grad|emb\w*[^\n]*requires_grad"
    r"|requires_grad[^\n]*emb|[\"']embed_tokens[\"']|[\"']wte[\"']|add_new_tokens\(|[Uu]nsloth|emb\w*\.weight\.register_hook"
)


def _tokens_of_a_script(script: Script, project: Project) -> Iterator[Said]:
    """`add_tokens` and `resize_token_embeddings`, and a `LoraConfig` that trains neither embedding nor head."""
    configs = script.calls_of("LoraConfig")
    if len(configs) != 1 or any(not one.is_known for one in configs[0].arguments.values() if one.name in _MODULES):
        return
    program = connected(script, project)
    sources = [code(one) for one in program]
    if not any("resize_token_embeddings(" in one for one in sources) or any(_TRAINS.search(one) for one in sources):
        return
    asked = {name: str(one.value) for name, one in configs[0].arguments.items() if name in _MODULES and one.value}
    if "**" in configs[0].arguments or any(
        name != "target_modules" or _EMBEDDING.search(asked[name]) for name in asked
    ):
        return
    made = next((place for one in program if (place := _adding(one)) is not None), None)
    if made is not None:
        remedy = (
            'Set `modules_to_save=["embed_tokens", "lm_head"]`, or `trainable_token_indices` for the new rows alone.'
        )
        yield _of_tokens("Tokens are added to the vocabulary", remedy, configs[0].place, made)


_MODULES = frozenset({"target_modules", "modules_to_save", "trainable_token_indices"})


def _adding(script: Script) -> Place | None:
    """Where tokens are added that stand in rows: an end or a padding token alone stands where nothing is read."""
    for call in script.calls:
        last = call.name.rpartition(".")[2]
        if last == "add_tokens" or (last == "add_special_tokens" and _names_more(script, call)):
            return call.place
    return None


def _names_more(script: Script, call: Call) -> bool:
    return bool(_ADDS.search("\n".join(script.source.split("\n")[call.place.line - 1 : call.place.end_line])))


def _of_tokens(what: str, remedy: str, place: Place, other: Place) -> Finding:
    return Finding(
        f"{what}, and the adapter trains neither the embedding nor the head: what stands for them stays as it was made by"
        " chance.",
        place=place,
        evidence=Evidence(Level.TEXT, {"tokens": what}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL, remedy, accuracy="The tokens are learned; the adapter's file grows by both matrices."
        ),
        also=(other,),
    )


def _head(script: Script) -> Iterator[Said]:
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
    summary="An adapter leaves a classifier's new head, or new tokens' embeddings, frozen.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="PEFT trains and saves the head of a classifier by itself for `SEQ_CLS` and `TOKEN_CLS`. For"
        " `CAUSAL_LM` there is"
        " nothing new to train. Rows that tokens of one's own add to the embedding and the head are new as well.",
        why="Adapters learn to please a random head, and the head is not in the adapter's file: loaded again it"
        " is another one.",
        detected="E0: a classifier is loaded, and its `LoraConfig` says `CAUSAL_LM` without `modules_to_save`. Axolotl's"
        " `tokens`, or `add_tokens` and `resize_token_embeddings` of a script, and neither `modules_to_save` nor the targets"
        " name the embedding. A padding token alone is not asked.",
        proven="`model.print_trainable_parameters()`, and the head's `requires_grad`.",
        deliberate=("The head is trained by code of one's own.",),
        sources=(
            "PEFT's `TaskType` and `PeftModelForSequenceClassification`; its guide to LoRA with new tokens",
            "Axolotl's documentation of `tokens` and `lora_modules_to_save`",
        ),
    ),
    bad=Example({"train.py": _SCRIPT.format("CAUSAL_LM")}, says="stays so"),
    good=Example({"train.py": _SCRIPT.format("SEQ_CLS")}),
)
