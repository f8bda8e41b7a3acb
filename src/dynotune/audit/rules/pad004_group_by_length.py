"""PAD004: rows are sorted by length although they are all equally long."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import micro_batch
from dynotune.audit.facts.blocks import cut_into_blocks
from dynotune.audit.facts.cards import gpus_told, several_cards
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.padded import padded_to_a_limit
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_work import called, heavy_calls, work_of_trainer
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\npacking: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.get("group_by_length") is True:
        name, shown = "group_by_length", "true"
    elif job.get("train_sampling_strategy") == "group_by_length":
        name, shown = "train_sampling_strategy", "group_by_length"
    else:
        return
    streamed = _streamed(job, project)
    if streamed is not None:
        yield _of_a_stream(job, name, shown, streamed)
        return
    yield from _of_lazy_rows(job, name, shown, project)
    why, also = _equally_long(job, project)
    if not why:
        yield from _of_no_batch(job, name, shown, project)
        return
    key = f"`{job.called(name)}: {shown}`"
    multipack = job.trainer is Trainer.AXOLOTL and job.get("packing") is True
    off = "random" if name == "train_sampling_strategy" else False
    yield Finding(
        f"{key} does nothing beside `sample_packing`: its own sampler makes the batches."
        if multipack
        else f"{key} sorts rows that {why} equally long: it changes their order and saves no padding.",
        place=job.place(name),
        evidence=Evidence(Level.RESOLVED, {name: shown, "equally long": why}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take {key} out"
            + (", or pad to the longest row of a batch and keep it." if "made" in why and also else "."),
            (job.set(name, off),),
            accuracy="None." if multipack else "Rows come in another order.",
        ),
        also=also,
    )


def _streamed(job: Job, project: Project) -> Call | None:
    """The call that loads the rows of its program as a stream; None: another one loads rows whole, or none streams."""
    loads = [call for one in project.scripts if one.file in job.files for call in one.calls_of("load_dataset")]
    told = [call for call in loads if (key := call.arguments.get("streaming")) is not None and key.value is True]
    return told[0] if told and len(told) == len(loads) else None


def _of_a_stream(job: Job, name: str, shown: str, call: Call) -> Finding:
    """transformers 4 stops; 5, where the key has another name, says that it ignores it."""
    ignored = name == "train_sampling_strategy"
    return Finding(
        f"`{job.called(name)}: {shown}` needs the length of each row, and rows come as a stream (`streaming=True`): "
        + ("the trainer ignores it." if ignored else "the trainer refuses it before the first step."),
        place=job.place(name),
        also=(call.place,),
        evidence=Evidence(Level.RESOLVED, {name: shown, "streaming": True}),
        stake=Stake(AtStake.CLARITY if ignored else AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the key out, or load the rows whole.",
            (job.set(name, "random" if ignored else False),),
            accuracy="None where the key is taken out: rows come in the stream's order.",
        ),
    )


def _of_lazy_rows(job: Job, name: str, shown: str, project: Project) -> Iterator[Said]:
    """Rows are tokenised when they are asked for, and lengths are known of tokenised ones alone."""
    if job.is_given("length_column_name"):
        return
    for script in project.scripts:
        if script.file not in job.files:
            continue
        heavy = {key: work for one in (*imported(script, project), script) for key, work in heavy_calls(one).items()}
        work = next((found for call in script.calls if (found := work_of_trainer(script, call, heavy))), None)
        if work is None or re.search(r"image|audio|Image|feature_extractor", work.name):
            continue
        yield Finding(
            f"`{job.called(name)}: {shown}` asks for the length of each row before the first step, and rows are tokenised"
            f" when they are asked for (`{called(work)}(...)`): all of them are, in every process, and again in training.",
            place=job.place(name),
            also=(work.place,),
            evidence=Evidence(Level.RESOLVED, {name: shown, "tokenised by": work.name}),
            stake=Stake(AtStake.TIME, 0.0, None),
            remedy=Remedy(
                Risk.SAFE,
                "Tokenise once with `map`, with a column `length`, or take the key out.",
                measure="The time from the start to the first step.",
            ),
        )
        return


def _of_no_batch(job: Job, name: str, shown: str, project: Project) -> Iterator[Said]:
    """Nothing is padded whose order could save any, or no sampler hears of it."""
    seen = job.environment.get("CUDA_VISIBLE_DEVICES")
    alone = job.get("num_processes") == 1 or ("num_processes" not in job.settings and gpus_told(job, project) == 1)
    alone = alone and "," not in str(seen.value if seen else "") and several_cards(job, project) is None
    flat = next(
        (call for one in _of_the_job(job, project) for call in one.calls_of("DataCollatorWithFlattening")), None
    )
    own = _own_loader(job, project)
    also: tuple[Place, ...] = ()
    if micro_batch(job) == 1 and alone:
        why = "sorts rows of which each is a batch by itself, on one GPU: it changes their order and saves no padding."
        also = (job.place("per_device_train_batch_size"),)
    elif job.get("padding_free") is True or flat is not None:
        why = "sorts rows that are laid side by side without padding: it changes their order and saves nothing."
        also = (flat.place,) if flat is not None else (job.place("padding_free"),)
    elif own is not None:
        why = f"reaches no sampler: `{own[0]}` makes the loader by itself."
        also = (own[1],)
    else:
        return
    yield Finding(
        f"`{job.called(name)}: {shown}` {why}",
        place=job.place(name),
        evidence=Evidence(Level.RESOLVED, {name: shown}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take the key out{', or give the loader a `LengthGroupedSampler`' if own is not None else ''}.",
            (job.set(name, "random" if name == "train_sampling_strategy" else False),),
            accuracy="None." if own is not None else "Rows come in another order.",
        ),
        also=also,
    )


def _of_the_job(job: Job, project: Project) -> list[Script]:
    first = [one for one in project.scripts if one.file in job.files]
    return list({one.file: one for script in first for one in (script, *imported(script, project))}.values())


_MAKES_LOADERS = ("get_train_dataloader", "_get_train_sampler")


def _own_loader(job: Job, project: Project) -> tuple[str, Place] | None:
    """A trainer's class that the program makes one of, whose method asks neither its base nor the key."""
    near = _of_the_job(job, project)
    made = {call.name.rpartition(".")[2] for one in near for call in one.calls}
    for script in near:
        for node in ast.walk(script.tree) if any(one in script.source for one in _MAKES_LOADERS) else ():
            if not isinstance(node, ast.ClassDef) or node.name not in made:
                continue
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name in _MAKES_LOADERS:
                    text = ast.unparse(one)
                    if not re.search(
                        r"super\(|group_by_length|LengthGrouped|_get_train_sampler\(|sampling_strategy", text[20:]
                    ):
                        return f"{node.name}.{one.name}", place_of(script, one)
    return None


def _equally_long(job: Job, project: Project) -> tuple[str, tuple[Place, ...]]:
    """Why all rows have one length, and where; empty where they may not."""
    if job.get("packing") is True:
        return "packing has already made", ()
    if "whisper" in str(job.get("model_name_or_path")).lower():
        return "its feature extractor has already made", ()
    padded = next(padded_to_a_limit(job, project), None)
    if padded is not None:
        return f"`{padded.by}` has already made", (padded.place,)
    blocks = cut_into_blocks(job, project)
    return (f"`{blocks[0]}` has already cut to be", (blocks[1],)) if blocks is not None else ("", ())


RULE = Rule(
    code="PAD004",
    name="grouped-by-length",
    summary="Rows are grouped by length that are equally long, or whose lengths nobody has yet.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="transformers shuffles, then sorts groups of 50 batches by length, so that a batch has rows of like length.",
        why='That saves padding where rows differ in length. Where packing or `padding="max_length"` has made them equal,'
        " it saves nothing, and the order is less random than it was.",
        detected="E1: `group_by_length`, or `train_sampling_strategy: group_by_length` (transformers 5), with packing or"
        " with rows that the job's own code, or the script that saved them, pads or cuts to one length;"
        " with batches of one row on one GPU, rows without padding, or a trainer's class that makes its loader by itself."
        " Grouping rows that differ is a choice, and not reported, but"
        " where they are tokenised when they are asked for (`set_transform`, `__getitem__`), since lengths come first.",
        proven="Print the lengths of a few batches.",
        deliberate=("Padding is to be taken out next.",),
        sources=("transformers' `LengthGroupedSampler`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}train_sampling_strategy: group_by_length\n"}, says="saves no padding"),
    good=Example({"sft.yaml": f"{_SFT}train_sampling_strategy: random\n"}),
)
