"""MEM001: activations are computed twice although they would fit."""

import re
from collections.abc import Iterator

import numpy as np

from dynotune.audit.facts.asked import adapters, max_length, micro_batch, number, on_gpu
from dynotune.audit.facts.cards import CARD, named_card
from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.lengths import longest_row
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_length import row_length
from dynotune.audit.facts.sized import sized
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.models import Known
from dynotune.audit.place import Place
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject

BYTES_A_TOKEN = 160
"""Of activations a layer and hidden number, for a forward pass without checkpointing: TRL's 7B LoRA took 102 (76 GiB at
6,110 tokens of which 15 are weights), and this leaves half as much again."""

BYTES_A_LOGIT = 10
SEEN = "H200, 7B LoRA: 222 against 310 ms, 583 against 824, DPO 824 against 1,106"
ROOM = 0.6
"""Share of the card that the estimate may take."""


_USED = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:GiB|GB|G)?\s*(?:of|/|out of)\s*(?:the\s*)?(\d+(?:\.\d+)?)\s*(?:GiB|GB|G)?\b", re.IGNORECASE
)
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ngradient_checkpointing: true"
SPARE = 0.35
"""Share of the card up to which a peak with checkpointing leaves room for what it saves in most models."""


def check(project: Project, _: Project) -> Iterator[Said]:
    if project.environment is not None:
        yield from _on_this_machine(project.environment, project)
    else:
        yield NotChecked(NONE_OF[Subject.ENVIRONMENT])
    if len({job.files for job in project.jobs}) == 1:
        yield from _by_a_document(project.jobs[0], project)
    for job in project.jobs:
        if job.get("gradient_checkpointing") is True and job.is_given("gradient_checkpointing") and on_gpu(job):
            said = list(_by_its_own_figure(job, project))
            yield from said
            if project.environment is None and not said:
                yield from _on_the_named_card(job, project)


def _by_its_own_figure(job: Job, project: Project) -> Iterator[Said]:
    """A comment beside the key tells the peak and the card."""
    place = job.place("gradient_checkpointing")
    comments = [one.comments for one in project.scripts if one.file == place.file]
    comments += [one.comments for one in project.configs if one.file == place.file]
    said = next((text for held in comments if (text := held.get(place.line))), "")
    found = _USED.search(said)
    if found is None or not re.search(r"peak|use|GiB|GB|mem", said, re.IGNORECASE):
        return
    used, card = float(found[1]), float(found[2])
    if card < 8 or used > SPARE * card:
        return
    yield Finding(
        f"`{job.called('gradient_checkpointing')}: true` computes every layer's forward pass twice, and by its own"
        f" comment"
        f" {used:g} of {card:g} GiB are in use with it.",
        place=place,
        evidence=Evidence(Level.TEXT, {"used GiB": used, "card GiB": card}),
        stake=Stake(AtStake.TIME, 0.2, 0.3, SEEN),
        remedy=Remedy(
            Risk.SAFE,
            f"Try `{job.called('gradient_checkpointing')}: false`, with the longest rows first.",
            breaks="Out of memory, if activations take what is free.",
            measure="dynotune bench -- python train.py :: python train.py --gradient_checkpointing false",
        ),
    )


_IN_USE = re.compile(
    r"(?:\b(?:memory|us(?:es?|ing|age)|takes?|needs?)\b"
    r"(?=[^.\n]{0,60}\bGi?B\s*(?:a|per|/|on each|each|on every)\s*(?:card|GPU|device)\b)"
    r"|\b(?:uses|takes|occupies|fills)\b(?=[^.\n]{0,30}\bGi?B\s*(?:of (?:it|the (?:card|GPU))|on (?:it|the (?:card|GPU)))\b)"
    r"|\bGPU\b|\bVRAM\b|\bpeaks?\b|nvidia-smi|\bCUDA\b)[^.\n]{0,60}?(?<![\d.])(\d{1,3}(?:\.\d)?)\s?(?:GiB|GB)\b"
    r"(?:\s*(?:of|/|out of)\s*(?:the\s*)?(\d{1,3})\b)?",
    re.IGNORECASE,
)
_NOT_THIS = re.compile(
    r"without|infer|eval|host|\bCPU\b|free|left|would|needs?\b|at least|weights|cards? with|or more|vs", re.IGNORECASE
)


def _by_a_document(job: Job, project: Project) -> Iterator[Said]:
    """A README's figure of the memory that is in use, beside the card that the project names."""
    figures = [
        (Place(file, number), found)
        for file, text in project.documents.items()
        for number, line in enumerate(text.split("\n"), 1)
        for part in re.split(r"(?<=[a-z)\dB])[.;] ", line)
        if not _NOT_THIS.search(part)
        and re.search(r"mem|VRAM|nvidia-smi|peak|in use|\b(?:uses|takes|occupies|fills)\b", part, re.IGNORECASE)
        for found in _IN_USE.finditer(part)
        if not CARD.search(found[0])
    ]
    if len(figures) != 1:
        return
    place, found = figures[0]
    card = float(found[2]) if found[2] else named_card(job, project)
    used, on = float(found[1]), _switched_on(job, project)
    if card is None or card < 8 or used > SPARE * card or on is None:
        return
    yield Finding(
        f"Activations are computed twice ({on[1]}), and by the project's own text {used:g} of {card:g} GB are in use.",
        place=on[0],
        evidence=Evidence(Level.TEXT, {"used GB": used, "card GB": card}),
        stake=Stake(AtStake.TIME, 0.2, 0.3, SEEN),
        remedy=Remedy(
            Risk.SAFE,
            "Try it without checkpointing, with the longest rows first.",
            breaks="Out of memory, if activations take what is free.",
            measure="dynotune profile -- python train.py",
        ),
        also=(place,),
    )


def _switched_on(job: Job, project: Project) -> tuple[Place, str] | None:
    """Where the job says so: its key, or the call in a loop of its own that no configuration keeps from being made."""
    if job.get("gradient_checkpointing") is True and job.is_given("gradient_checkpointing"):
        return job.place("gradient_checkpointing"), f"`{job.called('gradient_checkpointing')}: true`"
    if job.trainer is not Trainer.TORCH:
        return None
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("gradient_checkpointing_enable"):
            asked = [around.name for around in call.around if around.kind == "if"]
            off = r"gradient_checkpointing[\"']?\s*[:=]\s*(?:false|no|0)\b"
            if len(asked) > 1 or (
                asked and any(re.search(off, text, re.IGNORECASE) for text in project.texts.values())
            ):
                continue
            return call.place, f"`{call.on}.gradient_checkpointing_enable()`"
    return None


def _on_the_named_card(job: Job, project: Project) -> Iterator[Said]:
    """The project names one kind of card, and what the step needs by itself would take little of it."""
    card, model = named_card(job, project), sized(job)
    rows, length = micro_batch(job), max_length(job) or (longest_row(project) if not job.get("packing") else None)
    length = length or (int(number(job, "own_model_context") or 0) or None) or row_length(job, project)
    if card is None or model is None or model.hidden is None or rows is None or length is None:
        return
    if job.trainer in (Trainer.DYNOTUNE, Trainer.UNSLOTH):
        return
    needed = estimate(model, rows * length * (2 if str(job.method) == "dpo" else 1), adapters(job))
    if needed < ROOM * card * 2**30:
        yield _finding(job, model, needed, int(card * 2**30), rows, length)


def _on_this_machine(environment: Environment, project: Project) -> Iterator[Said]:
    if not environment.gpus:
        return
    memory = min(int(gpu["memory"]) for gpu in environment.gpus)
    for job in project.jobs:
        if job.get("gradient_checkpointing") is not True or job.trainer is Trainer.DYNOTUNE or not on_gpu(job):
            continue
        model = sized(job)
        rows, length = micro_batch(job), max_length(job)
        if model is None or model.hidden is None or rows is None or length is None:
            yield NotChecked(
                "the model's size, the batch or its length is not known, so whether activations fit cannot be told",
                job.place("gradient_checkpointing"),
            )
            continue
        data = project.data_of(job)
        if data is not None and data.lengths and not data.sampled and job.get("packing") is not True:
            length = min(length, int(np.max(data.lengths)))
        needed = estimate(model, rows * length * (2 if str(job.method) == "dpo" else 1), adapters(job))
        if needed < ROOM * memory:
            yield _finding(job, model, needed, memory, rows, length)


def estimate(model: Known, tokens: int, lora: bool | None) -> float:
    """Bytes of a step without checkpointing, on the high side. Not known adapters count as full training."""
    assert model.billions
    assert model.hidden
    assert model.layers
    weights = model.billions * 1e9 * (4.5 if lora else 18)
    return weights + tokens * (model.hidden * model.layers * BYTES_A_TOKEN + model.vocabulary * BYTES_A_LOGIT)


def _by_a_call(job: Job) -> bool:
    """`model.gradient_checkpointing_enable()`, which no flag takes back."""
    return job.called("gradient_checkpointing").endswith("_enable")


def _finding(job: Job, model: Known, needed: float, memory: int, rows: int, length: int) -> Finding:
    given = "" if job.is_given("gradient_checkpointing") else " (the trainer's default)"
    called = job.called("gradient_checkpointing")
    how = f"`{called}(...)`" if _by_a_call(job) else f"`{called}: true`{given}"
    return Finding(
        f"{how} computes every layer's forward pass twice; without it,"
        f" {rows} x {length:,} tokens of a {model.billions:g}B model take about {needed / 2**30:.0f} of the card's"
        f" {memory / 2**30:.0f} GiB.",
        place=job.place("gradient_checkpointing"),
        evidence=Evidence(
            Level.RESOLVED,
            {"estimated GiB": round(needed / 2**30, 1), "card GiB": round(memory / 2**30), "tokens": rows * length},
        ),
        stake=Stake(AtStake.TIME, 0.2, 0.3, SEEN),
        remedy=Remedy(
            Risk.SAFE,
            f"Try it without the call of `{called}`, with the longest rows first."
            if _by_a_call(job)
            else f"Try `{called}: false`, with the longest rows first.",
            breaks="Out of memory, if the estimate is wrong for this model.",
            measure="dynotune profile -- python train.py"
            if _by_a_call(job)
            else "dynotune bench -- python train.py :: python train.py --gradient_checkpointing false",
        ),
    )


RULE = Rule(
    code="MEM001",
    name="checkpointing-to-spare",
    summary="Gradient checkpointing is on although activations would fit.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Checkpointing throws a layer's activations away and computes them again for the backward pass.",
        why="That is a third of the work again. TRL has it on by default.",
        detected="E1: an estimate on the high side from the model's sizes, batch, length and the GPU of this"
        " machine; said"
        f" where it stays below {ROOM:.0%} of the card (`--env`; without it the one that files"
        f" name). E0: a comment behind the key that tells the peak"
        f" and the"
        f" card, up to {SPARE:.0%} of it.",
        proven="`dynotune plan --config sft.yaml` estimates memory; `dynotune bench` measures both.",
        deliberate=("Other processes share the card.", "The training runs on another machine than the audit."),
        sources=("The project's baseline on one H200, TRL with and without checkpointing",),
    ),
    bad=Example({"sft.yaml": f"{_SFT} # peak 4.1 GiB of 80\n"}, says="4.1 of 80 GiB"),
    good=Example({"sft.yaml": f"{_SFT} # 74 GiB of 80 in use\n"}),
)
