"""Rows of text for Unsloth, or for a release of TRL that adds no end token, made without one."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rendered_text import RenderedText, rendered_texts, tokenised_texts
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place

ADDS_END = (0, 16)
"""The release of TRL from which on its trainer puts an end token behind text that has none. Unsloth makes rows with code of
its own, which adds none in any release."""

_ADDS = re.compile(
    r"add_eos|\+=?\s*[\w.]*eos|\{[\w.]*eos|post_processor|TemplateProcessing|(?<!bos_token, )eos_token\s*=(?!=)"
    r"|skip_prepare_dataset|append_eos|\beos\b",
    re.IGNORECASE,
)
"""What may add one elsewhere: behind a row's text, in a tokenizer, in a library that does so."""


_ANSWER = re.compile(
    r"respon|answer|output|completion|target|reply|summary|translation|assistant|\[/INST\]|chosen|\b(?:bot|gpt|model)\b"
    r"|\bA:|\[[\"'](?:a|ans|y)[\"']\]|#{2,} (?!text|body|content|article|abstract|title)\w+:?\s",
    re.IGNORECASE,
)
"""Of what stands last in a row: a document's title and body end where the document does, and teach nobody to answer."""


_LABEL = re.compile(r"(?:^|\n)[#* ]*([A-Za-z][\w ]{1,30}):\**\s*$")
_OF_DOCUMENTS = re.compile(
    r"title|body|text|content|article|abstract|document|passage|author|date|url|name|tags?|source", re.I
)


def _labelled(text: RenderedText) -> bool:
    """`Complaint:\\n{complaint}\\n\\nLetter:\\n{letter}`: parts under a name each, of which the last answers the others."""
    labels = [found[1] for piece in text.literals if (found := _LABEL.search(piece)) is not None]
    return len(labels) > 1 and not any(_OF_DOCUMENTS.search(label) for label in labels)


def _answers(text: RenderedText) -> bool:
    return _ANSWER.search(text.last) is not None or _labelled(text)


_NEVER_ADD = re.compile(
    r"falcon|gpt-?(?:j|neo|2)|pythia|\bmpt-|bloom|\bopt-|stablelm|starcoder|codegen|phi-?[1-4]|olmo|granite|internlm|deepseek"
    r"|smollm|yi-|cerebras-gpt|rwkv|exaone|minicpm"
)
"""Families whose tokenizers put no end token behind a text by themselves, besides those that are known in all."""


def _is_known(name: object) -> bool:
    last = name.rpartition("/")[2].lower() if isinstance(name, str) else ""
    return known(name) is not None or _NEVER_ADD.search(last) is not None


def _switched_off(script: Script, project: Project) -> tuple[Place, ...]:
    """Where the tokenizer is told to add none (`add_eos_token=False`), also by what a launcher exports: each place of it, if
    all say so."""
    asked = [
        call.arguments["add_eos_token"]
        for one in together(script, project)
        for call in one.calls_of("from_pretrained")
        if "add_eos_token" in call.arguments
    ]
    if not asked or not all(one.value is False for one in asked):
        return ()
    return tuple(place for one in asked for place in (one.place, *one.via))


_SWITCH = re.compile(r"add_eos_token\s*=\s*[^,\n]*?(?=[,)\n])|\bADD_EOS\w*")


def text_without_end(script: Script, project: Project, ends: re.Pattern[str]) -> Iterator[Said]:
    """ends: what may be the end of an answer, in code that renders one."""
    version = project.pinned("trl")
    calls = script.calls_of("SFTTrainer", "UnslothTrainer")
    jobs = [job for job in project.jobs if script.file in job.files and job.trainer in (Trainer.TRL, Trainer.UNSLOTH)]
    under = any(job.trainer is Trainer.UNSLOTH for job in jobs)
    if not calls or not (under or (version is not None and version < ADDS_END)):
        return
    if not jobs or any(job.method is not Method.SFT or _packs(job.setting("packing")) for job in jobs):
        return  # packing puts one between rows
    if not all(_is_known(job.get("model_name_or_path")) for job in jobs):
        return  # a tokenizer of which nothing is known may add one
    if any(_ADDS.search(code(one)) for one in together(script, project)):
        return
    texts = rendered_texts(script, project)
    if not texts or not all(one.known and one.ends_with_data and not ends.search(one.source) for one in texts):
        return
    if not all(map(_answers, texts)):
        return
    first = texts[0]
    shown = "Unsloth" if under else f"TRL {'.'.join(map(str, version or ()))}"
    yield Finding(
        f"Rows end with the answer's own text, and neither the tokenizer nor {shown} puts an end token behind it: the"
        " model is never taught to stop.",
        place=first.place,
        evidence=Evidence(Level.TEXT, {"trainer": shown, "end token": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Put `tokenizer.eos_token` behind the text of each row.",
            effort=Effort.LINE,
            accuracy="The end of an answer is learned.",
            measure="Print the last id of a row of `trainer.train_dataset`.",
        ),
        also=(*first.also, calls[0].place),
    )


_PACKS = re.compile(
    r"group_texts|block_size|packing|concatenat|chain\(|SFTTrainer|UnslothTrainer|DPOTrainer|Seq2Seq|\bT5|MaskedLM"
)


def tokenised_without_end(
    script: Script, project: Project, ends: re.Pattern[str], pads: re.Pattern[str]
) -> Iterator[Said]:
    """The same for transformers' own trainer, whose rows the script tokenises. pads: where the end token is padding."""
    if not script.calls_of("Trainer") or "CausalLM" not in script.source:
        return
    jobs = [job for job in project.jobs if script.file in job.files and job.trainer is Trainer.TRANSFORMERS]
    if not jobs or not all(_is_known(job.get("model_name_or_path")) for job in jobs):
        return
    off = _switched_off(script, project)
    sources = [pads.sub("", code(one)) for one in together(script, project)]
    sources = [_SWITCH.sub("", one) for one in sources] if off else sources
    if any(_PACKS.search(one) or ends.search(one) or _ADDS.search(one) for one in sources):
        return
    texts = [one for one in tokenised_texts(script, project) if one.ends_with_data and _answers(one)]
    if not texts or not all(one.known and len(one.literals) > 1 for one in texts):
        return
    yield Finding(
        "Rows end with the answer's own text, and neither the tokenizer nor the trainer puts an end token behind it: the"
        " model is never taught to stop.",
        place=texts[0].place,
        evidence=Evidence(Level.TEXT, {"trainer": "transformers", "end token": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Put `tokenizer.eos_token` behind the text of each row.",
            effort=Effort.LINE,
            accuracy="The end of an answer is learned.",
            measure="Print the last id of a row of `trainer.train_dataset`.",
        ),
        also=(*texts[0].also, *off),
    )


def _packs(packing: object) -> bool:
    """It does, or may."""
    value = getattr(packing, "value", False)
    return packing is not None and value is not False
