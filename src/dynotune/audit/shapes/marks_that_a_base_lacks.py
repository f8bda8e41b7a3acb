"""A base model is trained on turns whose marks its vocabulary lacks, and nothing adds them: they fall into pieces."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.asked import given, version
from dynotune.audit.facts.job import GivenKey, Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_BASES = (
    (re.compile(r"(?:meta-llama|unsloth|nousresearch)/(?:meta-)?llama-3(?:\.\d)?-\d+b"), ("Llama 3's",)),
    (re.compile(r"(?:meta-llama|nousresearch)/llama-2-\d+b(?:-hf)?"), ()),
    (re.compile(r"mistralai/mistral-7b-v0\.[123]|mistralai/mixtral-8x\d+b-v0\.1"), ()),
    (re.compile(r"google/gemma-(?:2-)?\d+b|google/gemma-3-\d+b-pt"), ("Gemma's",)),
    (re.compile(r"(?:openai-community/)?gpt2(?:-medium|-large|-xl)?|eleutherai/pythia-[\d.]+[mb](?:-deduped)?"), ()),
    (re.compile(r"facebook/opt-[\d.]+[mb]|tiiuae/falcon-\d+b|eleutherai/gpt-(?:j-6b|neo-[\d.]+[mb])"), ()),
)
"""Base models by their whole official names, and whose marks their vocabularies have."""

_MARKS: Mapping[str, tuple[str, str]] = {
    "ChatML": ("<|im_start|>", "<|im_end|>"),
    "Llama 3's": ("<|start_header_id|>", "<|eot_id|>"),
    "Gemma's": ("<start_of_turn>", "<end_of_turn>"),
}
_TEMPLATES: Mapping[Trainer, tuple[str, Mapping[str, str]]] = {
    Trainer.AXOLOTL: (
        "chat_template",
        {"chatml": "ChatML", "qwen_25": "ChatML", "qwen3": "ChatML", "llama3": "Llama 3's", "gemma": "Gemma's"},
    ),
    Trainer.LLAMA_FACTORY: (
        "template",
        {"chatml": "ChatML", "qwen": "ChatML", "llama3": "Llama 3's", "gemma": "Gemma's"},
    ),
}
ADDS = (
    "new_special_tokens",
    "add_special_tokens",
    "add_tokens",
    "resize_vocab",
    "special_tokens",
    "tokens",
    "added_tokens_overrides",
)
"""Keys that give a tokenizer tokens."""

_ADDED = re.compile(
    r"\badd_tokens\(|add_special_tokens\(|additional_special_tokens|resize_token_embeddings|setup_chat_format"
    r"|(?:get|clone)_chat_template|[Uu]nsloth|extra_special_tokens|modules_to_save"
    r"|\beos_token\s*=(?!=)|\+\s*[\w.]*eos_token\b"
)
"""What may give a tokenizer other marks, or learn them."""


def adds_tokens(job: Job) -> bool:
    """A configuration gives its tokenizer tokens, other than one to pad with."""
    return any(_is_more_than_padding(key) for name in ADDS if (key := given(job, name)) is not None)


def _is_more_than_padding(key: GivenKey) -> bool:
    if key.name != "special_tokens" or not isinstance(key.value, dict):
        return True
    return not set(key.value) <= {"pad_token", "unk_token"}


def marks_that_a_base_lacks(job: Job, project: Project) -> Iterator[Said]:
    model = job.get("model_name_or_path")
    name = model.lower() if isinstance(model, str) else ""
    own = next((known for pattern, known in _BASES if pattern.fullmatch(name)), None)
    if own is None:
        return
    key, names = _TEMPLATES.get(job.trainer, ("", {}))
    for value, place in _asked(job, project, key) if key else ():
        theirs = names.get(value, "")
        if theirs and theirs not in own and not adds_tokens(job) and not _keeps_its_own(job):
            yield _finding(job, theirs, f"`{key}: {value}` writes", place, str(model))
            return
    start = next((one for one in project.scripts if one.file in job.files and not key), None)
    program = connected(start, project) if start is not None else ()
    if any(_ADDED.search(code(one)) for one in program) or _another_tokenizer(program, str(model)):
        return
    for script in program:
        for node, theirs in _written(script):
            if theirs not in own:
                yield _finding(job, theirs, "The template here writes", place_of(script, node), str(model))
                return


def _asked(job: Job, project: Project, key: str) -> Iterator[tuple[str, Place]]:
    """Templates that the configuration names: of the run, and Axolotl's of a data set."""
    asked = given(job, key)
    if asked is not None and isinstance(asked.value, str):
        yield asked.value, asked.place
    sets = given(job, "datasets") if job.trainer is Trainer.AXOLOTL else None
    for number, one in enumerate(sets.value if sets is not None and isinstance(sets.value, list) else ()):
        value = one.get(key) if isinstance(one, dict) else None
        if isinstance(value, str) and sets is not None:
            places = next((config.places for config in project.configs if config.file == sets.place.file), {})
            yield value, places.get(f"datasets.{number}.{key}", sets.place)


def _keeps_its_own(job: Job) -> bool:
    """The tokenizer is another's."""
    return any(
        given(job, name) is not None for name in ("tokenizer_config", "tokenizer_name_or_path", "tokenizer_path")
    )


def _another_tokenizer(program: Sequence[Script], model: str) -> bool:
    """A tokenizer is loaded by another name than the model's, or by one that is not known."""
    for script in program:
        for call in script.calls:
            if not call.name.endswith(("Tokenizer.from_pretrained", "TokenizerFast.from_pretrained")):
                continue
            named = call.arguments.get("0") or call.arguments.get("pretrained_model_name_or_path")
            if named is None or named.value != model:
                return True
    return False


def _written(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """Templates in Jinja that begin a turn with such a mark, and end it with the other and not with the tokenizer's end. A
    script that writes rows by hand may take such marks for text, and end rows as it likes."""
    for node in ast.walk(script.tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        for name, (begins, ends) in _MARKS.items() if "{%" in text and "eos_token" not in text else ():
            if begins in text and ends in text:
                yield node, name


def _finding(job: Job, theirs: str, who: str, place: Place, model: str) -> Finding:
    begins, ends = _MARKS[theirs]
    adapters = job.get("use_peft") is not False
    adds = "new_special_tokens" if (version(job, "llamafactory") or (1,)) < (0, 9, 3) else "add_special_tokens"
    trained = ", and train the embedding and the head for them (`modules_to_save`)" if adapters else ""
    how = {
        Trainer.AXOLOTL: f'Add them: `tokens: ["{begins}"]` and `special_tokens: {{eos_token: "{ends}"}}`, with'
        " `lora_modules_to_save: [embed_tokens, lm_head]` where adapters are trained",
        Trainer.LLAMA_FACTORY: f"Add them (`{adds}: {begins},{ends}`, `resize_vocab: true`), with"
        " `additional_target: embed_tokens,lm_head` where adapters are trained",
    }.get(job.trainer, f"Add them (`tokenizer.add_special_tokens`, `model.resize_token_embeddings`){trained}")
    then = "each falls into pieces of text, and no turn ends with the token that generation stops at"
    if job.trainer is Trainer.LLAMA_FACTORY:  # it adds a template's end itself
        then = "they fall into pieces of text, or have no row in the embedding without `resize_vocab`"
    return Finding(
        f"{who} turns between `{begins}` and `{ends}`, which are no tokens of the base model `{model}`, and nothing adds"
        f" them: {then}.",
        place=place,
        also=(job.place("model_name_or_path"),),
        evidence=Evidence(Level.TEXT, {"marks": theirs, "model": model}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{how}; or begin with a model that knows a chat template.",
            effort=Effort.MINUTES,
            accuracy="A turn begins and ends with a token each, which can be learned and stopped at.",
            measure=f"Print `tokenizer.convert_tokens_to_ids('{begins}')`: the unknown token, or None.",
        ),
    )
