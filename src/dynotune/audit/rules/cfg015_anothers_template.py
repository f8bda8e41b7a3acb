"""CFG015: an instructed model is given the chat template of another family of models."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.base_without_template import base_without_template
from dynotune.audit.shapes.marks_of_another_family import marks_of_another_family
from dynotune.audit.shapes.marks_that_a_base_lacks import adds_tokens, marks_that_a_base_lacks
from dynotune.audit.shapes.system_turn_refused import system_turn_refused
from dynotune.audit.shapes.template_put_on import template_put_on

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nfinetuning_type: lora\ndataset: a\noutput_dir: out\n"

_STORED = r"(-awq|-gptq(-int[48])?|-bnb-4bit|-unsloth-bnb-4bit)?"
"""How the same weights are kept."""

FAMILIES: tuple[tuple[str, str, str], ...] = (
    ("Qwen", rf"^(code)?qwen-?(1\.5|2|2\.5)-(coder-|math-)?[\d.]+b-(instruct|chat){_STORED}$", "qwen"),
    ("Qwen", rf"^qwen-?3-[\d.]+b(-a[\d.]+b)?{_STORED}$", "qwen3"),
    ("Qwen", r"^qwen-?3-coder-[\d.]+b-a[\d.]+b-instruct$", "qwen3_nothink"),
    ("Llama 3", rf"^(meta-)?llama-3(\.\d)?-\d+b-instruct{_STORED}$", "llama3"),
    ("Llama 2", r"^(llama-2-\d+b-chat|codellama-\d+b-instruct)(-hf)?$", "llama2"),
    ("Mistral", rf"^(mistral-7b|mixtral-8x\d+b)-instruct-v0\.\d{_STORED}$", "mistral"),
    ("Gemma", rf"^(code)?gemma-(1\.1-|2-|3-)?\d+b-it{_STORED}$", "gemma"),
    ("Phi", r"^phi-3(\.5)?-(mini|medium)(-\d+k)?-instruct$", "phi"),
)
"""Whose marks of turns a model has learned: name, the last part of a model's name in lower case, LLaMA-Factory's template.
Names are matched whole: a fine-tune of somebody else's may have learned other marks."""

TEMPLATES: Mapping[Trainer, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    Trainer.LLAMA_FACTORY: (
        "template",
        {
            "Qwen": ("qwen", "qwen3", "qwen3_nothink"),
            "Llama 3": ("llama3",),
            "Llama 2": ("llama2", "llama2_zh"),
            "Mistral": ("mistral",),
            "Gemma": ("gemma", "gemma2", "gemma3"),
            "Phi": ("phi",),
            "ChatML": ("chatml", "chatml_de"),
        },
    ),
    Trainer.AXOLOTL: (
        "chat_template",
        {
            "Qwen": ("qwen_25", "qwen3"),
            "Llama 3": ("llama3",),
            "Mistral": ("mistral_v1", "mistral_v2v3"),
            "Gemma": ("gemma",),
            "Phi": ("phi_3", "phi_35"),
            "ChatML": ("chatml",),
        },
    ),
}


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from marks_of_another_family(job, project)
    yield from base_without_template(job, project)
    yield from system_turn_refused(job, project)
    yield from marks_that_a_base_lacks(job, project)
    yield from template_put_on(job, project)
    key, names = TEMPLATES.get(job.trainer, ("", {}))
    found, model = given(job, key), job.get("model_name_or_path")
    if found is None or not isinstance(found.value, str) or not isinstance(model, str):
        return
    last = model.rstrip("/").rpartition("/")[2].lower()
    own = next(((family, usual) for family, pattern, usual in FAMILIES if re.match(pattern, last)), None)
    theirs = next((family for family, called in names.items() if found.value in called), "")
    same = theirs == (own[0] if own is not None else "") or (own is not None and (own[0], theirs) == ("Qwen", "ChatML"))
    if own is None or not theirs or same or adds_tokens(job):
        return
    fits = own[1] if job.trainer is Trainer.LLAMA_FACTORY else "tokenizer_default"
    yield Finding(
        f"`{key}: {found.value}` is {theirs}'s, and `{model}` is a {own[0]} model: it has learned other marks of turns, and"
        f" {theirs}'s are not among its special tokens.",
        place=found.place,
        evidence=Evidence(Level.TEXT, {key: found.value, "model": model, "family": own[0], "template of": theirs}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{key}: {fits}`.",
            accuracy="The model is trained in the form of conversation that it knows, and that servers render.",
        ),
    )


RULE = Rule(
    code="CFG015",
    name="anothers-template",
    summary="A model is trained with another family's chat template, or asked for one that it has not.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="An instructed model knows the marks that begin and end a turn in its own chat template. Another family's marks"
        " are not special tokens of its tokenizer: they become pieces of text, or new tokens without a trained embedding.",
        why="What the model has learned of conversations is given up, and who serves it with its tokenizer's template"
        " asks it in another form than it was trained in.",
        detected="E0: LLaMA-Factory's `template` or Axolotl's `chat_template`, against the model's name, by a table of"
        " well-known families and their official names. Configurations that add tokens are not asked."
        " Of base models, by their official names: a template, of a configuration or a script, whose marks are not in"
        " their vocabularies."
        " Texts of a script with another family's marks, where it renders nothing by its template and adds no tokens."
        " `apply_chat_template` for a base model whose tokenizer is known to have none, in a program that gives it none."
        " A system turn in rows for Gemma 1 or 2, whose template refuses it."
        " Unsloth's `get_chat_template` with the name of another family's, and a text that is set as `chat_template`:"
        " also by a name from another file, from a template's file, or of another model's tokenizer.",
        proven="`dynotune prepare --config sft.yaml --show 3` prints rendered rows with the tokens that they become.",
        deliberate=("A template that all of one's models share, with tokens that are added and trained elsewhere.",),
        sources=("LLaMA-Factory 0.9.5, README's table of models and templates", "Axolotl 0.19, `ChatTemplate`"),
    ),
    bad=Example({"sft.yaml": f"{_SFT}template: llama3\n"}, says="`template: llama3` is Llama 3's"),
    good=Example({"sft.yaml": f"{_SFT}template: qwen\n"}),
)
