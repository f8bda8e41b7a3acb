"""ATT005: flash attention is asked for where the project's own files say that it cannot be."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import attention, on_gpu
from dynotune.audit.facts.cards import older_card
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_LIST = frozenset({"torch", "transformers", "trl", "llamafactory", "axolotl"})
"""A file that asks for one of these lists what the training needs."""

_IMAGES = re.compile(
    r"^\s*FROM\s+\S*(nvcr\.io|axolotl|unsloth|llamafactory|llama-factory|ngc)", re.MULTILINE | re.IGNORECASE
)


def check(job: Job, project: Project) -> Iterator[Said]:
    used = attention(job)
    if (
        used not in ("flash_attention_2", "flash_attention_3")
        or not job.is_given("attn_implementation")
        or not on_gpu(job)
    ):
        return
    yield from _too_old(job, used, project)
    yield from _not_asked_for(job, used, project)


def _too_old(job: Job, used: str, project: Project) -> Iterator[Said]:
    """A comment, a command, Slurm's directive or the README names the card."""
    card = older_card(job, project)
    if not card:
        return
    yield Finding(
        f"`{job.called('attn_implementation')}: {used}` on a {card}, which the files name: FlashAttention's"
        f" kernels need"
        " Ampere or newer, and the first step stops.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.TEXT, {"attention": used, "GPU": card}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('attn_implementation')}: sdpa`.",
            (job.set("attn_implementation", "sdpa"),) if job.trainer is not Trainer.LLAMA_FACTORY else (),
            measure="python -c 'import torch; print(torch.cuda.get_device_capability())'",
        ),
    )


def _not_asked_for(job: Job, used: str, project: Project) -> Iterator[Said]:
    """The project lists what it installs, and the kernels' package is not among it."""
    names = {one.name for one in project.asked}
    if (
        not names & _LIST
        or any("flash" in name for one in project.asked for name in (one.name, *one.extras))
        or any(_mentions(text) for text in project.texts.values())
    ):
        return
    lists = [one for one in project.asked if one.name in _LIST]
    yield Finding(
        f"`{job.called('attn_implementation')}: {used}` needs the package flash-attn, which is not among the"
        f" {len(names)}"
        f" packages that {lists[0].place.file} asks for: "
        + (
            "LLaMA-Factory warns once and trains on `sdpa`."
            if job.trainer is Trainer.LLAMA_FACTORY
            else "the model does not load."
        ),
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.TEXT, {"attention": used, "asked for": ", ".join(sorted(names)[:12])}),
        stake=Stake(AtStake.TIME if job.trainer is Trainer.LLAMA_FACTORY else AtStake.STOPS),
        remedy=Remedy(Risk.OPERATIONAL, f"Add `flash-attn` to {lists[0].place.file}.", effort=Effort.MINUTES),
        also=(lists[0].place,),
    )


def _mentions(text: str) -> bool:
    return (bool(re.search(r"flash[-_]attn(?!\s*:)|kernels-community/", text)) and "install" in text) or bool(
        _IMAGES.search(text)
    )


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nattn_implementation: {}\n"
RULE = Rule(
    code="ATT005",
    name="flash-that-cannot-be",
    summary="Flash attention is asked for where the project's own files say that it cannot be.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="FlashAttention is a package of its own, for GPUs since Ampere.",
        why="The run stops at its start, or falls back to what is slower with one line in the log.",
        detected="E0: a GPU before Ampere that the job's files name (comments, Slurm's `--gres`), or the project's "
        "documents,"
        " and none since; or requirements, an image or"
        " an installing"
        " command that list torch or a trainer, and no package or extra of flash attention. ATT002 tries it on a machine.",
        proven="`dynotune env --accelerators` on the machine.",
        deliberate=("The package is in the base image.",),
        sources=("FlashAttention's README: supported GPUs",),
    ),
    bad=Example(
        {"sft.yaml": _SFT.format("flash_attention_2"), "requirements.txt": "torch==2.11.0\ntrl==1.16.0\n"},
        says="flash-attn",
    ),
    good=Example(
        {"sft.yaml": _SFT.format("flash_attention_2"), "requirements.txt": "torch==2.11.0\ntrl==1.16.0\nflash-attn\n"}
    ),
    also_bad=(
        Example({"sft.yaml": f"# one Tesla T4\n{_SFT.format('flash_attention_2')}"}, says="need Ampere"),
        Example(
            {"sft.yaml": _SFT.format("flash_attention_2"), "README.md": "Two V100-SXM2-32GB in one box.\n"},
            says="need Ampere",
        ),
    ),
)
