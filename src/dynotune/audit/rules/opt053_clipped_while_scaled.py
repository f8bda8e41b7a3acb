"""OPT053: gradients are clipped while they still carry the loss scale."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _by_accelerate(script)
    scaled = [call for call in script.calls if call.name.endswith(".GradScaler") and call.name.startswith("torch.")]
    if not scaled or "unscale_" in script.source or "ShardedGradScaler" in script.source:
        return
    if any((enabled := call.arguments.get("enabled")) is not None and enabled.value is not True for call in scaled):
        return
    for loop in loops(script):
        clips = [one for one in loop.has("clip_grad_norm_", "clip_grad_value_") if not _measures(script, one)]
        scales = [call for call in loop.has("scale") if call.on]
        if not clips or not scales:
            continue
        yield Finding(
            "Gradients are clipped while they are still multiplied by the loss scale (65,536 at first): the limit"
            " cuts every"
            " step to almost nothing.",
            place=clips[0].place,
            evidence=Evidence(Level.TEXT, {"clipped": clips[0].name, "unscaled": False}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call `{scales[0].on}.unscale_(optimizer)` before clipping; with bfloat16, drop the scaler.",
                accuracy="The updates that were meant.",
                measure="Print what `clip_grad_norm_` returns.",
            ),
            also=(scales[0].place,),
        )


def _by_accelerate(script: Script) -> Iterator[Said]:
    """Accelerate scales the loss under fp16, and takes the scale out in its own clipping alone."""
    made = [
        call
        for call in script.calls_of("Accelerator")
        if (precision := call.arguments.get("mixed_precision")) is not None
        and precision.value == "fp16"
        and not precision.others
        and not any(place.key.startswith("-") for place in precision.via)
    ]
    if not made or "unscale" in script.source or "GradScalerKwargs" in script.source:
        return  # whose scale may be 1, or none
    for loop in loops(script):
        scales = [call for call in loop.has("backward") if "accelerat" in call.on or call.on == made[0].result]
        clips = [
            one
            for one in loop.has("clip_grad_norm_", "clip_grad_value_")
            if one.name.startswith("torch.") and not _measures(script, one)
        ]
        if scales and clips:
            yield Finding(
                "Gradients are clipped by PyTorch while they are still multiplied by Accelerate's loss scale"
                " (65,536 at first): the limit cuts every step to almost nothing.",
                place=clips[0].place,
                evidence=Evidence(Level.TEXT, {"clipped": clips[0].name, "unscaled": False}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    f"Call `{scales[0].on}.clip_grad_norm_` under `{scales[0].on}.sync_gradients`: it takes the scale out.",
                    accuracy="The updates that were meant.",
                    measure="Print what `clip_grad_norm_` returns.",
                ),
                also=(made[0].place, scales[0].place),
            )
            return


def _measures(script: Script, clips: Call) -> bool:
    """A limit of `inf` cuts nothing: the norm is asked for alone."""
    limit = clips.arguments.get("max_norm") or clips.arguments.get("1")
    infinite = limit is not None and str(limit.value) in ("inf", "nan")
    return infinite or re.search(r"\binf\b", text_at(script, clips.place)) is not None


_LOOP = """import torch

scaler = torch.amp.GradScaler("cuda")
for batch in train_loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
%s    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="OPT053",
    name="clipped-while-scaled",
    summary="Gradients are clipped before the loss scale is taken out.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`GradScaler` multiplies the loss, so gradients are too large by the same factor until `unscale_` or"
        " `step`.",
        why="A norm limit of 1 on gradients that are 65,536 times too large divides every update by their norm.",
        detected="E0: a `GradScaler` scales the loss, gradients are clipped in the loop, and nothing calls `unscale_`; or"
        " Accelerate is made for fp16 and PyTorch's own function clips.",
        proven="`clip_grad_norm_` returns norms of thousands.",
        deliberate=("The limit was chosen for scaled gradients.",),
        sources=("PyTorch's examples of automatic mixed precision, gradient clipping",),
    ),
    bad=Example({"train.py": _LOOP % ""}, says="loss scale"),
    good=Example({"train.py": _LOOP % "    scaler.unscale_(optimizer)\n"}),
)
