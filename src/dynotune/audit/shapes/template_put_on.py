"""A run puts another family's chat template on an instructed model's tokenizer: by Unsloth's name for it, as text, from
a file, or from another model's tokenizer."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.chat_templates import ChatTemplate, of_job, of_scripts
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.marks_that_a_base_lacks import adds_tokens

_QUANTIZED = re.compile(r"(?:-unsloth)?-bnb-[48]bit$|-(?:awq|gptq(?:-int[48])?|fp8|dynamic)$")
"""What hosts put behind a model's name who have only quantized it."""

_LEARNED = (
    (
        "Qwen",
        re.compile(
            r"^qwen-?(?:1\.5|2|2\.5)-(?:(?:coder|math)-)?[\d.]+b-(?:instruct|chat)$|^qwen-?3-[\d.]+b(?:-a\d+b)?$"
        ),
    ),
    ("Llama 3", re.compile(r"^(?:meta-)?llama-3(?:\.\d)?-\d+b-instruct$")),
    ("Gemma", re.compile(r"^gemma-(?:2-|3-)?\d+b-it$")),
    ("Mistral", re.compile(r"^mistral-7b-instruct-v0\.\d$")),
)
"""Whose marks of turns a model has learned, by the last part of its whole name in small letters."""

_NAMED: Mapping[str, str] = {
    **dict.fromkeys(("llama-3", "llama3"), "Llama 3"),
    **dict.fromkeys(("llama-3.1", "llama-31", "llama-3.2", "llama-3.3", "llama-32", "llama-33"), "Llama 3"),
    **dict.fromkeys(("gemma", "gemma2", "gemma-2", "gemma3", "gemma-3", "gemma-3n", "gemma3n"), "Gemma"),
    **dict.fromkeys(("qwen-2.5", "qwen-25", "qwen25", "qwen2.5", "qwen-3", "qwen3"), "Qwen"),
    "mistral": "Mistral",
    **dict.fromkeys(("phi-3", "phi-3.5", "phi-4"), "Phi"),
}
"""Unsloth's names of templates that are one family's own. Not `chatml`, whose end it maps to the model's, and not those
of plain words (`alpaca`, `vicuna`)."""

_FITS = {"Qwen": "qwen-2.5", "Llama 3": "llama-3.1", "Gemma": "gemma", "Mistral": "mistral"}
_MARKS = {
    "Llama 3": re.compile(r"<\|start_header_id\|>"),
    "Gemma": re.compile(r"<start_of_turn>"),
    "Qwen": re.compile(r"<\|im_start\|>"),
    "Mistral": re.compile(r"\[INST\]"),
}
_GROWS = re.compile(
    r"\badd_tokens\(|\badd_special_tokens\(|additional_special_tokens|resize_token_embeddings|add_new_tokens\("
    r"|setup_chat_format|clone_chat_template"
)
"""What teaches the tokenizer other marks."""


def template_put_on(job: Job, project: Project) -> Iterator[Said]:
    named = job.get("model_name_or_path")
    own = _family(named) if isinstance(named, str) else ""
    start = next((one for one in project.scripts if one.file in job.files), None)
    if not own or adds_tokens(job):
        return
    program = connected(start, project) if start is not None else ()
    if any(_GROWS.search(code(one)) for one in program):
        return
    templates = (*of_job(job, project), *of_scripts(program, project))
    given = [one for script in program for one in _by_name(script)]
    given += [one for template in templates for one in _by_text(template)]
    if not given or any(theirs == own for _, _, theirs, _ in given):
        return  # none, or several of which one fits: which is used, is not told here
    place, shown, theirs, also = given[0]
    whose = "Llama 2's and Mistral" if theirs == "Mistral" else theirs
    yield Finding(
        f"`{shown}` is {whose}'s, and `{named}` is a {own} model: it has learned other marks of turns, and"
        f" these are spelled as pieces of text in its vocabulary.",
        place=place,
        also=(job.place("model_name_or_path"), *also),
        evidence=Evidence(Level.TEXT, {"template of": theirs, "model": named, "family": own}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f'Take `chat_template="{_FITS[own]}"`, or leave the call out: the tokenizer has its own template. Marks'
            " by which answers are looked for change with it."
            if shown.startswith("chat_template=")
            else f"Leave `{shown.partition(':')[0]}` out: the tokenizer has its own template.",
            accuracy="The model is trained in the form of conversation that it knows, and that servers render.",
            measure="Print a rendered row with its tokens.",
        ),
    )


def _family(named: str) -> str:
    last = _QUANTIZED.sub("", named.rstrip("/").rpartition("/")[2].lower())
    return next((family for family, pattern in _LEARNED if pattern.search(last)), "")


def _by_name(script: Script) -> Iterator[tuple[Place, str, str, tuple[Place, ...]]]:
    """`get_chat_template(tokenizer, chat_template="llama-3.1")`, where the name is known and one."""
    for call in script.calls_of("get_chat_template"):
        given = call.arguments.get("chat_template") or call.arguments.get("1")
        if given is None or not given.is_known or given.others or not isinstance(given.value, str):
            continue
        if (theirs := _NAMED.get(given.value.lower(), "")) and "nsloth" in call.name:
            yield call.place, f'chat_template="{given.value}"', theirs, ()


def _by_text(template: ChatTemplate) -> Iterator[tuple[Place, str, str, tuple[Place, ...]]]:
    """A text with one family's marks, or the template of a model of one."""
    also = (template.home,) if template.home is not None else ()
    if template.of_model:
        marks = [family] if (family := _family(template.of_model)) else []
    else:
        marks = [family for family, pattern in _MARKS.items() if pattern.search(template.text)]
    if len(marks) == 1:
        yield template.place, template.shown, marks[0], also
