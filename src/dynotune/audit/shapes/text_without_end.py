"""Rows of text for Unsloth, or for a release of TRL that adds no end token, made without one."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rendered_text import rendered_texts, tokenised_texts
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known

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
    if any(known(job.get("model_name_or_path")) is None for job in jobs):
        return  # a tokenizer of which nothing is known may add one
    if any(_ADDS.search(code(one)) for one in together(script, project)):
        return
    texts = rendered_texts(script, project)
    if not texts or not all(one.known and one.ends_with_data and not ends.search(one.source) for one in texts):
        return
    if not all(_ANSWER.search(one.last) for one in texts):
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
    if not jobs or any(known(job.get("model_name_or_path")) is None for job in jobs):
        return
    sources = [pads.sub("", code(one)) for one in together(script, project)]
    if any(_PACKS.search(one) or ends.search(one) or _ADDS.search(one) for one in sources):
        return
    texts = [one for one in tokenised_texts(script, project) if one.ends_with_data and _ANSWER.search(one.last)]
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
        also=texts[0].also,
    )


def _packs(packing: object) -> bool:
    """It does, or may."""
    value = getattr(packing, "value", False)
    return packing is not None and value is not False
