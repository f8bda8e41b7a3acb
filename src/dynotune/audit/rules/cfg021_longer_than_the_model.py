"""CFG021: rows may be longer than the model has positions."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import max_length
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "dataset_name: data.jsonl\n"
POSITIONS: tuple[tuple[str, int, bool], ...] = (
    (r"^gpt2(-medium|-large|-xl)?$|^distilgpt2$", 1024, True),
    (r"^opt-[\d.]+(m|b)$", 2048, True),
    (r"^pythia-", 2048, False),
    (r"^tinyllama[-_]1\.1b|^tinyllama-1\.1b", 2048, False),
    (r"^smollm-", 2048, False),
    (r"^llama-?2-\d+b(-chat)?(-hf)?$", 4096, False),
    (r"^(meta-)?llama-3-\d+b(-instruct)?$", 8192, False),
    (r"^gemma-(2-)?\d+b(-it)?$", 8192, False),
    (r"^phi-3-mini-4k-instruct$", 4096, False),
    (r"^olmo-2-", 4096, False),
)
"""By the last part of a name in lower case: positions of the published configuration, and whether each has a weight."""


def check(job: Job, project: Project) -> Iterator[Said]:
    tokens, model = max_length(job), job.get("model_name_or_path")
    if tokens is None or not job.is_given("max_length") or not isinstance(model, str) or _scaled(job):
        return
    last = model.rstrip("/").rpartition("/")[2].lower()
    there = next((rest for pattern, *rest in POSITIONS if re.search(pattern, last)), None)
    if there is None or tokens <= there[0]:
        return
    data = project.data_of(job)
    longest = max(data.lengths) if data is not None and data.lengths and not data.sampled else None
    if longest is not None and longest <= there[0]:
        return
    stake = AtStake.CHOICE if longest is None and not there[1] else AtStake.STOPS if there[1] else AtStake.RESULT
    what = (
        "a longer row stops the run with an index error"
        if there[1]
        else "what lies behind them it has never seen, and nothing stretches its rotary embedding"
    )
    yield Finding(
        f"`{job.called('max_length')}: {tokens:,}` is more than the {there[0]:,} positions of `{model}`: {what}.",
        place=job.place("max_length"),
        evidence=Evidence(Level.RESOLVED, {"max_length": tokens, "positions": there[0], "longest row": longest}),
        stake=Stake(stake),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{job.called('max_length')}: {there[0]}`, or take a model with a longer context.",
            accuracy="Longer rows are cut.",
        ),
        also=(job.place("model_name_or_path"),),
    )


def _scaled(job: Job) -> bool:
    """The context is stretched by a key, or packing makes rows of many short documents."""
    names = ("rope_scaling", "rope_theta", "model_init_kwargs", "packing", "shift_attn", "rope_type")
    return any(job.get(name) for name in names) or any(
        key.name in ("rope_scaling", "overrides_of_model_config") for key in job.given
    )


RULE = Rule(
    code="CFG021",
    name="longer-than-the-model",
    summary="Rows may be longer than the model has positions.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="A model is made for a number of positions. With learned ones there is no weight for the next; with"
        " rotary ones"
        " there is an angle that it has never seen.",
        why="The first stops at the first long row. The second trains on, and what it learns of long rows is poor.",
        detected="E1: the length that is given against the published configuration of well-known models, by name;"
        " with data,"
        " only where a row is that long. Not said of packed rows, nor where the rotary embedding is scaled.",
        proven="`AutoConfig.from_pretrained(model).max_position_embeddings`.",
        deliberate=("The model is to learn a longer context.", "No row is that long."),
        sources=("The models' `config.json`",),
    ),
    bad=Example(
        {"sft.yaml": f"{_SFT}model_name_or_path: openai-community/gpt2\nmax_length: 2048\n"}, says="1,024 positions"
    ),
    good=Example({"sft.yaml": f"{_SFT}model_name_or_path: openai-community/gpt2\nmax_length: 1024\n"}),
)
