"""CMP003: the model is compiled, and every batch has another shape."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.TORCH:
        yield from _of_a_loop(job, project)
        return
    if job.get("torch_compile") is not True or job.trainer not in (
        Trainer.TRL,
        Trainer.TRANSFORMERS,
        Trainer.LLAMA_FACTORY,
    ):
        return
    if not on_gpu(job) or job.method not in (Method.SFT, Method.DPO):
        return
    if job.trainer is Trainer.LLAMA_FACTORY and job.get("packing") is True:
        return  # its packed rows have one length
    dpo = job.method is Method.DPO
    checkpointing = job.get("gradient_checkpointing") is True
    limit = (
        " With gradient checkpointing TRL's DPO reaches the limit of eight recompilations and runs uncompiled."
        if dpo and checkpointing and job.trainer is Trainer.TRL
        else ""
    )
    yield Finding(
        f"`{job.called('torch_compile')}: true` compiles the whole model, and batches are padded to their longest row: new"
        f" lengths compile again.{limit}",
        place=job.place("torch_compile"),
        evidence=Evidence(
            Level.RESOLVED, {"torch_compile": True, "packing": job.get("packing"), "method": str(job.method)}
        ),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            "Take it out unless it was measured over a whole run, compiling included.",
            (job.remove("torch_compile"),) if job.is_given("torch_compile") else (),
            breaks="Where shapes repeat, compiled steps may be faster.",
            measure="dynotune bench -- python train.py --torch_compile :: python train.py",
        ),
    )


def _of_a_loop(job: Job, project: Project) -> Iterator[Said]:
    """A loop of one's own that compiles for static shapes, over batches that are padded to their longest row."""
    for script in (one for one in project.scripts if one.file in job.files):
        near = "\n".join(code(one) for one in together(script, project))
        longest = re.search(
            r"padding=(True|[\"']longest)|tok\w*\.pad\(|pad_sequence\(|max\(\s*len\(|max\(map\(len"
            r"|DataCollator(ForSeq2Seq|WithPadding|ForLanguageModeling)\(",
            near,
        )
        fixed = re.search(r"padding=[\"']max_length|pad_to_max|\bpack|cu_seqlens|bucket|pad_to_multiple_of", near)
        for call in script.calls_of("compile"):
            dynamic, mode = call.arguments.get("dynamic"), call.arguments.get("mode")
            if call.name != "torch.compile" or not longest or fixed:
                continue
            if mode is not None and mode.value in _GRAPHS and not mode.others and dynamic is None:
                yield _graphs(call.place, str(mode.value))
                return
            if dynamic is None or dynamic.value is not False:
                continue
            yield Finding(
                "`torch.compile(dynamic=False)` compiles for one shape, and batches are padded to their longest"
                " row: each new"
                " length compiles again, and from the eighth on the model runs uncompiled.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"dynamic": False}),
                stake=Stake(AtStake.TIME),
                remedy=Remedy(
                    Risk.SAFE,
                    "Leave `dynamic` out, or pad to a few lengths.",
                    measure="dynotune profile -- python train.py",
                ),
            )
            return


_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that record CUDA graphs, each of which holds for one shape."""


def _graphs(place: Place, mode: str) -> Finding:
    return Finding(
        f'`torch.compile(mode="{mode}")` records CUDA graphs, which hold for one shape, and batches are padded to their'
        " longest row: each new length records again, and keeps memory of its own.",
        place=place,
        evidence=Evidence(Level.TEXT, {"mode": mode}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.SAFE,
            "Leave `mode` out, or pad to a few lengths.",
            measure="dynotune profile -- python train.py",
        ),
    )


RULE = Rule(
    code="CMP003",
    name="compiled-for-each-shape",
    summary="The model is compiled for batches whose shapes vary.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Compiled code is made for shapes. A second length makes it dynamic; lengths taken as numbers in Python, masks"
        " and boolean indices break it up or compile it again.",
        why="Compiling takes seconds to minutes, and may never pay back in a short run.",
        detected="E1: `torch_compile` with rows padded to the longest of a batch. E0: `torch.compile` with"
        " `dynamic=False`, or in a mode of CUDA graphs, in a loop over such rows. With a profile (E3), the recompilations.",
        proven="`TORCH_LOGS=recompiles python train.py` prints each.",
        deliberate=("All rows have one length.", "A long run, for which it was measured."),
        sources=(
            "TRL 1.16 on a toy model: 3 recompilations of full and 8 of LoRA training in a few steps, and 9 graph breaks",
            "H200, 23M parameters, packed: 49 ms a step uncompiled; compiled, 60 steps did not end in 75 s",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}torch_compile: true\n"}, says="compile again"),
    good=Example({"sft.yaml": f"{_SFT}torch_compile: false\n"}),
)
