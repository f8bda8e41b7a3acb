"""MSK054: a tokenizer gets new tokens, and the model no rows for them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_GROWN = re.compile(
    r"resize_token_embeddings|setup_chat_format|clone_chat_template|add_new_tokens|resize_vocab|smart_tokenizer"
)
_USUAL = re.compile(
    r"<\|?(eos|bos|unk|/?s|pad|endoftext|eot_id|end_of_text|begin_of_text|finetune_right_pad_id|mask|sep|cls)\|?>"
    r"|</s>|\[(PAD|UNK|CLS|SEP|MASK)\]"
)
SPARE = ("qwen2", "qwen3")
"""Types whose embeddings have some hundred rows more than their tokenizers have tokens."""


def check(script: Script, project: Project) -> Iterator[Said]:
    added = [(call, new) for call in script.calls_of("add_special_tokens", "add_tokens") if (new := _new(call))]
    if not added:
        return
    near = together(script, project)
    if any(_GROWN.search(code(one)) for one in near) or not any(re.search(r"[tT]rain", code(one)) for one in near):
        return
    models = [
        known(setting.value)
        for one in near
        for call in one.calls_of("from_pretrained")
        for setting in (call.arguments.get("0"), call.arguments.get("pretrained_model_name_or_path"))
        if setting is not None and setting.is_known
    ]
    if not models or any(model is None or model.model_type in SPARE for model in models):
        return
    call, new = added[0]
    yield Finding(
        f"`{call.on}` gets {len(new)} new token{'s' * (len(new) > 1)} (`{new[0]}`), and nothing calls"
        " `resize_token_embeddings`: their ids lie behind the model's last row, and the first batch with one stops"
        " the run.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"new": ", ".join(new[:5]), "resized": False}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Call `model.resize_token_embeddings(len(tokenizer))`; with adapters train the new rows too"
            ' (`modules_to_save=["embed_tokens", "lm_head"]`).',
            accuracy="New rows begin near the mean of the others and are learned.",
        ),
    )


def _new(call: Call) -> list[str]:
    """Tokens that no tokenizer of a language model has, as far as their text tells. Empty where any is not known."""
    given = call.arguments.get("0") or next(iter(call.arguments.values()), None)
    value = given.value if given is not None else None
    if isinstance(value, dict):
        value = [one for part in value.values() for one in (part if isinstance(part, list | tuple) else [part])]
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        return []
    return [one for one in value if not _USUAL.fullmatch(one)]


_SCRIPT = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
tokenizer.add_special_tokens({"additional_special_tokens": ["<call>", "</call>"]})
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
%sTrainer(model, train_dataset=rows).train()
"""
RULE = Rule(
    code="MSK054",
    name="tokens-without-rows",
    summary="A tokenizer gets new tokens, and the model no rows for them.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A new token's id is the vocabulary's size. The embedding has a row for it only once it is made larger.",
        why="The first batch that has one ends in `index out of range`, or on a GPU in a device-side assertion that"
        " names no"
        " line of the script.",
        detected="E0: tokens with unusual texts are added, and no file that works with this one resizes. Not said"
        " of families"
        " whose embeddings have spare rows, nor of models that are not known by name.",
        proven="`len(tokenizer) <= model.get_input_embeddings().num_embeddings`.",
        deliberate=("The checkpoint that is loaded has been resized before.",),
        sources=("transformers' documentation of `add_special_tokens`",),
    ),
    bad=Example({"train.py": _SCRIPT % ""}, says="2 new tokens"),
    good=Example({"train.py": _SCRIPT % "model.resize_token_embeddings(len(tokenizer))\n"}),
)
