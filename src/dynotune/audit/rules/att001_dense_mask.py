"""ATT001: packed rows under an attention that needs a dense mask of every token against every other."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import attention, given, max_length, micro_batch, on_gpu
from dynotune.audit.facts.attention_given import as_given, give_attention
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.packed_rows import DENSE, is_flat, leaks_without_flash
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.mask_of_segments import SHORT, mask_of_lightning, mask_of_segments

_PACKED = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\npacking: true\nmax_length: 2048\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_a_trainer(job, project)
        yield from mask_of_segments(job, project)
    yield from mask_of_lightning(project)


def _of_a_trainer(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer not in (Trainer.TRL, Trainer.LLAMA_FACTORY) or not on_gpu(job):
        return
    if job.trainer is Trainer.TRL:
        if job.method is Method.DPO:
            return  # its batches are padded, whatever the keys say (CFG005)
        flat = is_flat(job) and not leaks_without_flash(job)  # a row that leaks has no mask (PAD001)
    else:
        neat = given(job, "neat_packing")
        flat = neat is not None and neat.value is True
    if not flat:
        return
    used = attention(job)
    if used is None:
        yield NotChecked("the attention that the packed rows meet is not in what was read", job.place("packing"))
        return
    if used not in DENSE:
        return
    rows, length = micro_batch(job), max_length(job)
    if rows is None or length is None:
        return
    # TRL lays the whole batch out as one row; LLaMA-Factory keeps a row for each bin.
    side = rows * length if job.trainer is Trainer.TRL else length
    if side < SHORT:
        return
    mebibytes = side * side * (1 if job.trainer is Trainer.TRL else rows) / 2**20
    named = f"`{as_given(job, used)}`" if used else "the model's own attention (`sdpa`)"
    works = _flash_works(project)
    told, changes = give_attention(job, "flash_attention_2")
    remedy = Remedy(
        Risk.SAFE if works else Risk.OPERATIONAL,
        f"Set {told}" + ("." if works else ", once flash-attn works on the machine (`dynotune env --accelerators`)."),
        changes if works else (),
        breaks="" if works else "Without the package the run stops, or falls back.",
        measure="dynotune profile -- python train.py",
    )
    yield Finding(
        f"Packed rows of up to {side:,} tokens meet {named}, which isolates documents by a mask of {side:,} x {side:,}"
        f" ({mebibytes:,.0f} MiB) and works on all of it.",
        place=job.place("attn_implementation") if job.is_given("attn_implementation") else job.place("packing"),
        evidence=Evidence(
            Level.RESOLVED, {"tokens": side, "mask MiB": round(mebibytes), "attention": used or "default"}
        ),
        stake=Stake(
            AtStake.TIME,
            0.05,
            0.32,
            "980 against 671 ms a step at 4 x 2048 tokens, 7B LoRA, one H200: the project's log",
        ),
        remedy=remedy,
    )


def _flash_works(project: Project) -> bool:
    package = project.environment.packages.get("flash-attn") if project.environment else None
    return package is not None and package.works is True


RULE = Rule(
    code="ATT001",
    name="packed-rows-dense-mask",
    summary="Packed rows meet an attention that needs a dense mask.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="TRL lays packed documents out in one long row and isolates them by their positions. Flash attention takes"
        " that as it is; for `sdpa` and `eager`, transformers builds a mask of every token against every other. Before"
        " TRL 0.23, these get no positions, and documents see each other (PAD001).",
        why="The mask grows with the square of the batch's tokens, no flash kernel takes it, and grouped heads are"
        " copied.",
        detected="E1: the resolved packing, batch, length and attention. E0: own code that compares each token's document"
        " with every other's, or fills a diagonal of blocks, for a causal mask that it hands on. With a profile (E3), by the"
        " kernels' names.",
        proven="`dynotune profile -- python train.py` names the attention kernels of a step.",
        deliberate=(
            "flash-attn has no wheel for the machine, and the rows are short.",
            "An attention function of the user's own is registered under the name `sdpa`.",
        ),
        sources=(
            "TRL 1.16 run on the CPU with a toy model: SDPA got a mask of [1, 1, 2018, 2018], and nothing was logged",
            "H200, 7B LoRA, packed 4 x 2048: 980 ms with sdpa, 671 with FlashAttention-2 (the project's baseline)",
        ),
    ),
    bad=Example({"sft.yaml": f"{_PACKED}per_device_train_batch_size: 8\n"}, says="16,384 x 16,384"),
    good=Example({"sft.yaml": f"{_PACKED}per_device_train_batch_size: 8\nattn_implementation: flash_attention_2\n"}),
)
