"""ATT004: eager attention, which writes every score to memory."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import max_length, on_gpu
from dynotune.audit.facts.attention_given import as_given, give_attention
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.attention_by_hand import attention_by_hand
from dynotune.audit.shapes.attention_off_the_fused_path import NEED_SCORES, attention_off_the_fused_path
from dynotune.audit.shapes.causal_mask_written_out import causal_mask_written_out

NEEDED = (*NEED_SCORES, "mpt")
"""Parts of names of models with soft-capped or biased scores or sinks, for which eager is or was the recommended way."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nmax_length: 4096\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _asked_for(job)
    for script in project.scripts:
        yield from attention_by_hand(script, project)
        yield from attention_off_the_fused_path(script, project)
        yield from causal_mask_written_out(script, project)


def _asked_for(job: Job) -> Iterator[Said]:
    if job.get("attn_implementation") != "eager" or not job.is_given("attn_implementation") or not on_gpu(job):
        return
    model = job.get("model_name_or_path")
    if not isinstance(model, str) or any(part in model.lower() for part in NEEDED):
        return
    length = max_length(job)
    at = f"; at {length:,} tokens {length * length * 2 / 2**20:,.0f} MiB a head and row" if length else ""
    told, changes = give_attention(job, "sdpa")
    yield Finding(
        f"`{as_given(job, 'eager')}` writes the scores of every token"
        " against every"
        f" other to memory{at}; `sdpa` computes the same without them.",
        place=job.place("attn_implementation"),
        evidence=Evidence(Level.RESOLVED, {"attention": "eager", "max_length": length}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.SAFE,
            f"Set {told}.",
            changes,
            measure="dynotune profile -- python train.py",
        ),
    )


RULE = Rule(
    code="ATT004",
    name="eager-attention",
    summary="Eager attention is asked for where `sdpa` computes the same.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`eager` is transformers' attention written out in separate operations. `sdpa` hands the same to"
        " PyTorch's fused"
        " kernels.",
        why="Scores take memory and traffic with the square of the length, forwards and backwards.",
        detected="E1: `attn_implementation: eager`, given; not for models whose scores are soft-capped or that have sinks."
        " E0: a module that multiplies queries by keys, takes the softmax of it and multiplies by values, in a program that"
        " trains and names no fused kernel; a configuration's attribute that says eager; both fused kernels of PyTorch"
        " switched off; `nn.MultiheadAttention` whose weights nobody takes and nobody declines.",
        proven="`dynotune profile -- python train.py` shows `softmax` and batched products instead of a fused kernel.",
        deliberate=(
            "Attention weights are wanted as an output.",
            "A model whose fused path was wrong in the version that is used.",
        ),
        sources=(
            "60 steps of a small model: losses with eager and with SDPA within 1e-5 (the project's parity study)",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}attn_implementation: eager\n"}, says="32 MiB"),
    good=Example({"sft.yaml": f"{_SFT}attn_implementation: sdpa\n"}),
)
