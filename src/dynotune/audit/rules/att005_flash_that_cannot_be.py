"""ATT005: flash attention is asked for where the project's own files say that it cannot be."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import FLASH, attention, is_false, on_gpu
from dynotune.audit.facts.attention_given import as_given, give_attention
from dynotune.audit.facts.cards import older_card
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.kernels_imported import LISTS, guarded, is_installed, kernels_imported


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_job(job, project)
    yield from kernels_imported(project)


def _of_job(job: Job, project: Project) -> Iterator[Said]:
    yield from _in_float32(job)
    yield from _in_a_loop(job, project)
    yield from _without(job, project)
    yield from _installed_for_nothing(job, project)
    yield from _of_no_name(job, project)


_KNOWN = re.compile(
    r"eager|sdpa|flex_attention|flash_attention_[234]|paged\|.*|.*/.*|flash_attention_.*kernel.*|sdpa_\w+"
)
_REGISTERS = re.compile(r"AttentionInterface|ALL_ATTENTION_FUNCTIONS|attention_implementation.*register")
_HERE = (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.TORCH)


def _of_no_name(job: Job, project: Project) -> Iterator[Said]:
    """A name that transformers has no attention of."""
    used = attention(job)
    if not used or _KNOWN.fullmatch(used) or job.trainer not in _HERE or not job.is_given("attn_implementation"):
        return
    if any(_REGISTERS.search(one.source) for one in project.scripts) or job.get("trust_remote_code") is True:
        return
    wanted = "flash_attention_2" if re.search(r"flash|fa", used) else "sdpa"
    yield Finding(
        f"`{job.called('attn_implementation')}: {used}` is no attention of transformers (`eager`, `sdpa`,"
        " `flash_attention_2`, `flex_attention`, ...), and nothing registers one of that name: the model does not load.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.TEXT, {"attention": used}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Write `{wanted}`.",
            (job.set("attn_implementation", wanted),),
        ),
    )


def _installed_for_nothing(job: Job, project: Project) -> Iterator[Said]:
    """The package is installed for a card that its kernels do not run on, and the model is given another attention."""
    asked = next((one for one in project.asked if one.name == "flash-attn"), None)
    if asked is None or attention(job) not in ("sdpa", "eager", "") or not (card := older_card(job, project)):
        return
    others = [attention(one) for one in project.jobs]
    if any(one is None or one.startswith("flash") for one in others) or job is not _first(project):
        return
    named = "the model's own attention" if attention(job) == "" else f"`{attention(job)}`"
    yield Finding(
        f"flash-attn is installed for a {card}, on which its kernels do not run (they need Ampere or newer), and the model"
        f" is loaded with {named}: its build, of many minutes, changes nothing.",
        place=asked.place,
        evidence=Evidence(Level.TEXT, {"attention": attention(job) or "default", "GPU": card}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.SAFE, "Leave it out.", measure="dynotune env --accelerators"),
        also=(job.place("attn_implementation"),),
    )


def _first(project: Project) -> Job | None:
    """A project's package is said once."""
    return next((one for one in project.jobs if attention(one) in ("sdpa", "eager", "")), None)


def _without(job: Job, project: Project) -> Iterator[Said]:
    used = attention(job)
    if (
        used not in ("flash_attention_2", "flash_attention_3")
        or not job.is_given("attn_implementation")
        or not on_gpu(job)
    ):
        return
    if guarded(job, project):
        return
    yield from _too_old(job, used, project)
    yield from _not_asked_for(job, used, project)


def _too_old(job: Job, used: str, project: Project) -> Iterator[Said]:
    """A comment, a command, Slurm's directive or the README names the card."""
    card = older_card(job, project)
    if not card:
        return
    told, changes = give_attention(job, "sdpa")
    yield Finding(
        f"`{as_given(job, used)}` on a {card}, which the files name: FlashAttention's"
        f" kernels need"
        " Ampere or newer, and the first step stops.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.TEXT, {"attention": used, "GPU": card}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Set {told}.",
            changes,
            measure="python -c 'import torch; print(torch.cuda.get_device_capability())'",
        ),
    )


def _not_asked_for(job: Job, used: str, project: Project) -> Iterator[Said]:
    """The project lists what it installs, and the kernels' package is not among it."""
    names = {one.name for one in project.asked}
    if (
        not names & LISTS
        or "kernels" in names  # transformers takes the hub's kernel where `kernels` is
        or ("axolotl" in names and not _without_its_extra(project))
        or is_installed("flash-attn", r"flash[-_]attn", project)
    ):
        return
    lists = [one for one in project.asked if one.name == "axolotl"] or [
        one for one in project.asked if one.name in LISTS
    ]
    yield Finding(
        f"`{as_given(job, used)}` needs the package flash-attn, which is not among the"
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
        remedy=Remedy(
            Risk.OPERATIONAL,
            f"Ask for `axolotl[flash-attn]` in {lists[0].place.file}."
            if lists[0].name == "axolotl"
            else f"Add `flash-attn` to {lists[0].place.file}.",
            effort=Effort.MINUTES,
        ),
        also=(lists[0].place,),
    )


EXTRA_OF_AXOLOTL = (0, 10)
"""Releases before this one have flash-attn as an extra alone, and do not bring `kernels`."""


def _without_its_extra(project: Project) -> bool:
    """axolotl is asked for by a release that has the package as an extra, and nobody asks for the extra."""
    pinned = project.pinned("axolotl")
    return pinned is not None and pinned < EXTRA_OF_AXOLOTL


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nattn_implementation: {}\n"


_TYPES = re.compile(
    r"autocast|b?float16|\.half\(|mixed_precision|\bfp16|\bbf16|Accelerator\(|deepspeed|load_in_|quantization_config|set_default_dtype"
    r"|Fabric\(|dtype"
)
"""What may make queries of 16 bits."""


def _in_a_loop(job: Job, project: Project) -> Iterator[Said]:
    """A loop of one's own, or a trainer that is told of no 16 bits, over a model that is loaded without a type: float32, by
    transformers before 5."""
    used = attention(job)
    if job.trainer not in (Trainer.TORCH, Trainer.TRANSFORMERS) or not used or not used.startswith(FLASH):
        return
    if not on_gpu(job) or job.holes or job.get("mixed_precision") not in (None, "no"):
        return
    by_trainer = job.trainer is Trainer.TRANSFORMERS
    if by_trainer and not (is_false(job, "bf16") and is_false(job, "fp16")):
        return
    pinned = project.pinned("transformers")
    if job.get("dtype") is not None or pinned is None or pinned >= (5,):
        return
    start = next((one for one in project.scripts if one.file in job.files), None)
    program = connected(start, project) if start is not None else ()
    if not program or any(_TYPES.search(code(one)) for one in program):
        return
    shown = ".".join(map(str, pinned))
    yield Finding(
        f"`{as_given(job, used)}` with a model that is loaded without a type, which is float32 in"
        f" transformers {shown}, and {'neither `bf16` nor `fp16`' if by_trainer else 'no autocast'}: its kernels take 16-bit"
        " numbers only, so the first step stops.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.RESOLVED, {"attention": used, "dtype": "float32", "transformers": shown}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('bf16')}: true`."
            if by_trainer
            else 'Run the forward pass under `torch.autocast("cuda", torch.bfloat16)`.',
            (job.set("bf16", True),) if by_trainer else (),
            accuracy="Matrix products round to bfloat16; the weights stay float32.",
        ),
    )


def _in_float32(job: Job) -> Iterator[Said]:
    used = attention(job)
    if not used or not used.startswith(FLASH) or not on_gpu(job):
        return
    if job.get("dtype") not in ("float32", "fp32") or not is_false(job, "bf16") or not is_false(job, "fp16"):
        return
    if job.get("mixed_precision") not in (None, "no") or job.get("load_in_4bit") is True:
        return
    yield Finding(
        f"`{as_given(job, used)}` with weights in float32 and neither `bf16` nor `fp16`: its kernels"
        " take 16-bit numbers only, so the first step stops.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.RESOLVED, {"attention": used, "dtype": "float32", "bf16": False, "fp16": False}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('bf16')}: true`, or {give_attention(job, 'sdpa')[0]} to stay in float32.",
            (job.set("bf16", True),),
            accuracy="Matrix products round to bfloat16; the weights stay float32.",
        ),
    )


RULE = Rule(
    code="ATT005",
    name="flash-that-cannot-be",
    summary="Flash attention is asked for where the project's own files say that it cannot be.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="FlashAttention is a package of its own, for GPUs since Ampere. Its kernels take float16 and bfloat16: queries"
        " become 16-bit by autocast (`bf16: true`) or by the model's own type.",
        why="The run stops at its start (`FlashAttention only support fp16 and bf16 data type`), or falls back to what is"
        " slower with one line in the log.",
        detected="E0: a GPU before Ampere that the job's files name (comments, Slurm's `--gres`), or the project's"
        " documents, and none since; or requirements, an image or an installing command that list torch or a trainer, and no"
        " package or extra of flash attention. ATT002 tries it on a machine. A loop over a model that is"
        " loaded without a type, under a transformers before 5 that is pinned, in a program that names"
        " no type of 16 bits. A module that imports flash_attn or xformers itself, is held to the"
        " same lists and GPUs. E1: attention, `dtype`, `bf16`, `fp16` and"
        " accelerate's mixed precision as they resolve. E0: a name that transformers has no attention of.",
        proven="`dynotune env --accelerators` on the machine.",
        deliberate=("The package is in the base image.", "The model casts its queries itself."),
        sources=("FlashAttention's README: supported GPUs, and requirements of datatypes",),
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
        Example(
            {"sft.yaml": f"{_SFT.format('flash_attention_2')}dtype: float32\nbf16: false\n"},
            says="float32",
        ),
    ),
    formerly=("ATT003",),
    former_names=("flash-attention-in-float32",),
)
