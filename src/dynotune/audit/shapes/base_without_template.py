"""A base model is asked for its chat template, and its tokenizer has none."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_BASES = re.compile(
    r"^(?:meta-llama/(?:meta-)?llama-3(?:\.[123])?-\d+b|mistralai/mistral-7b-v0\.1|google/gemma-(?:2-)?\d+b"
    r"|(?:openai-community/)?gpt2(?:-medium|-large|-xl)?|eleutherai/pythia-[\d.]+[mb](?:-deduped)?|facebook/opt-[\d.]+[mb]"
    r"|meta-llama/llama-2-\d+b-hf)$"
)
"""By their whole official names: a copy of somebody else's may have been given one."""

DEFAULTS_UNTIL = (4, 44)
"""The release of transformers from which on classes of tokenizers have no template of their own for models without one."""

_GIVES = re.compile(
    r"(?<!apply_)chat_template|setup_chat_format|[Uu]nsloth|\.jinja|[Ii]nstruct[\"']|-[Cc]hat[\"']|-it[\"']|[Tt]emplate\s*="
)
"""What may give one: the attribute, TRL's helpers, the tokenizer of another model."""


def base_without_template(job: Job, project: Project) -> Iterator[Said]:
    model = job.get("model_name_or_path")
    pinned = project.pinned("transformers")
    if (
        not isinstance(model, str)
        or not _BASES.match(model.lower())
        or (pinned is not None and pinned < DEFAULTS_UNTIL)
    ):
        return
    start = next((one for one in project.scripts if one.file in job.files), None)
    program = connected(start, project) if start is not None else ()
    if any(_GIVES.search(code(one)) for one in program):
        return
    calls = [call for one in program for call in one.calls if call.name.rpartition(".")[2] == "apply_chat_template"]
    if not calls or any("chat_template" in call.arguments for call in calls):
        return
    yield Finding(
        f"`apply_chat_template` is called for `{model}`, a base model whose tokenizer has no chat template, and nothing"
        " gives it one: the first row raises an error.",
        place=calls[0].place,
        evidence=Evidence(Level.TEXT, {"model": model, "chat template": None}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Set `tokenizer.chat_template` (and add its marks as tokens), or take the instructed model.",
            effort=Effort.MINUTES,
            accuracy="Which marks of turns are learned is decided by it.",
            measure="Print the first rendered row.",
        ),
        also=(job.place("model_name_or_path"),),
    )
