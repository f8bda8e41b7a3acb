"""LOR005: the embedding or the head is trained whole, in a model where they are one weight."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

TIED = {"embed_tokens", "lm_head"}

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nuse_peft: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    saved = job.get("lora_modules_to_save")
    saved = [saved] if isinstance(saved, str) else saved
    model = known(job.get("model_name_or_path"))
    if not isinstance(saved, list | tuple) or adapters(job) is False or model is None or not model.tied:
        return
    half = TIED & {name for name in saved if isinstance(name, str)}
    if not half:
        return
    assert model.hidden
    each = model.vocabulary * model.hidden
    gib = each * len(half) * 16 / 2**30
    if len(half) == 1:
        (one,) = half
        other = next(iter(TIED - half))
        says = (
            f"`{one}` is trained as a copy of its own and `{other}` stays as it was: they are one weight in this model"
        )
    else:
        says = "`embed_tokens` and `lm_head` are one weight in this model, and become two copies that part ways"
    yield Finding(
        f"{says} ({each / 1e6:,.0f} million numbers each; {gib:.1f} GiB with gradient and Adam's states in float32).",
        place=job.place("lora_modules_to_save"),
        evidence=Evidence(Level.RESOLVED, {"modules": sorted(half), "model": job.get("model_name_or_path")}),
        stake=Stake(AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Leave them out, or train new tokens alone (PEFT's `trainable_token_indices`).",
            accuracy="Embedding and head stay the same weight; a merged model keeps its size.",
        ),
    )


RULE = Rule(
    code="LOR005",
    name="half-of-tied-weights",
    summary="One half of tied weights is trained whole beside an adapter.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="`modules_to_save` makes a trained copy of a module. Small models use one weight as embedding and as head.",
        why="A copy of one leaves the other: new tokens can be read and not written, or the other way round, and merging"
        " unties the weights.",
        detected="E1: the modules, and whether the model's weights are tied by its name.",
        proven="Compare `embed_tokens` and `lm_head` of the merged model.",
        deliberate=("Both are to be trained apart, and the model is saved untied.",),
        sources=("PEFT's documentation of `modules_to_save` and `trainable_token_indices`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}lora_modules_to_save: [embed_tokens]\n"}, says="one weight"),
    good=Example({"sft.yaml": _SFT}),
)
