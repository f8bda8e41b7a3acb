"""Rows are written by hand with the marks of turns that another family of models knows."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.marks_that_a_base_lacks import adds_tokens

_MARKS = {
    "ChatML": re.compile(r"<\|im_start\|>(?:user|assistant|system)"),
    "Llama 3's": re.compile(r"<\|start_header_id\|>(?:user|assistant|system)"),
    "Gemma's": re.compile(r"<start_of_turn>(?:user|model)"),
    "Phi's and Zephyr's": re.compile(r"<\|(?:user|assistant)\|>"),
    "Llama 2's and Mistral's": re.compile(r"\[INST\]"),
}
_MODELS = (
    (re.compile(r"^qwen-?(1\.5|2|2\.5)-[\d.]+b-(instruct|chat)$|^qwen-?3-[\d.]+b$"), "ChatML"),
    (re.compile(r"^(meta-)?llama-3(\.\d)?-\d+b-instruct$"), "Llama 3's"),
    (re.compile(r"^gemma-(2-|3-)?\d+b-it$"), "Gemma's"),
    (re.compile(r"^mistral-7b-instruct-v0\.\d$|^llama-2-\d+b-chat(-hf)?$"), "Llama 2's and Mistral's"),
    (re.compile(r"^phi-3(\.5)?-(mini|small|medium)(-\d+k)?-instruct$|^zephyr-7b-\w+$"), "Phi's and Zephyr's"),
)
"""Whose marks of turns a model has learned, by the last part of its whole name: a fine-tune of somebody else's may have
learned others."""

_MADE_KNOWN = re.compile(
    r"apply_chat_template|chat_template|add_tokens|add_special_tokens\(|additional_special_tokens|resize_token_embeddings"
    r"|setup_chat_format|train_on_responses_only|CompletionOnly"
)
"""What renders by the model's own template, or teaches the tokenizer other marks."""


def marks_of_another_family(job: Job, project: Project) -> Iterator[Said]:
    named = job.get("model_name_or_path")
    last = named.rpartition("/")[2].lower() if isinstance(named, str) else ""
    own = next((marks for pattern, marks in _MODELS if pattern.search(last)), "")
    start = next((one for one in project.scripts if one.file in job.files), None)
    if not own or start is None:
        return
    program = connected(start, project)
    sources = [code(one) for one in program]
    if any(_MADE_KNOWN.search(one) for one in sources) or adds_tokens(job):
        return
    if own in _MARKS and any(_MARKS[own].search(one) for one in sources):
        return
    for script in program:
        for node, theirs in _written(script):
            if theirs == own:
                continue
            yield _finding(theirs, place_of(script, node), named, own, job)
            return
    for place, theirs in _configured(job, project):
        if theirs != own:
            yield _finding(theirs, place, named, own, job)
            return


def _configured(job: Job, project: Project) -> Iterator[tuple[Place, str]]:
    """Texts of configurations that the program is given, with places for a row's columns."""
    for config in (one for one in project.configs if one.file in job.files):
        for path, place in config.places.items():
            value = config.at(path)
            for name, pattern in _MARKS.items() if isinstance(value, str) and "{" in value else ():
                if pattern.search(value):
                    yield place, name


def _finding(theirs: str, place: Place, named: object, own: str, job: Job) -> Finding:
    return Finding(
        f"Rows are written with {theirs} marks of turns, and `{named}` has learned others: these are no tokens of"
        " its vocabulary, and it is asked by its own later.",
        place=place,
        also=(job.place("model_name_or_path"),),
        evidence=Evidence(Level.TEXT, {"marks": theirs, "the model's": own}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Render rows by the model's own template: `tokenizer.apply_chat_template(messages)`.",
            effort=Effort.MINUTES,
            accuracy="What the model knows of turns is kept.",
        ),
    )


def _written(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """Texts with such marks."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name, pattern in _MARKS.items():
                if pattern.search(node.value):
                    yield node, name
