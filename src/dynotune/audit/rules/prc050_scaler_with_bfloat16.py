"""PRC050: a loss scale for a precision that needs none."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    scalers = [call for call in script.calls if call.name in ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")]
    casts = [
        call
        for call in script.calls
        if call.name in ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")
    ]
    if not scalers or not casts or "float16" in script.source.replace("bfloat16", ""):
        return
    if any("enabled" in call.arguments for call in scalers):
        return
    types = [call.arguments.get("dtype") for call in casts]
    if not all(given is not None and given.value == "bfloat16" for given in types):
        return
    yield Finding(
        "`GradScaler` scales the loss of a bfloat16 run, which has float32's range: every step looks for infinities"
        " and waits"
        " for the answer, for nothing.",
        place=scalers[0].place,
        evidence=Evidence(Level.TEXT, {"autocast": "bfloat16", "scaler": True}),
        stake=Stake(AtStake.TIME, 0.0, 0.03, "one pass over all gradients and a wait a step"),
        remedy=Remedy(
            Risk.NUMERIC,
            "Take the scaler out: `loss.backward()`, `optimizer.step()`.",
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
        also=(casts[0].place,),
    )


_LOOP = """import torch

scaler = torch.amp.GradScaler("cuda")
for batch in train_loader:
    with torch.autocast("cuda", dtype=torch.%s):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="PRC050",
    name="scaler-with-bfloat16",
    summary="A gradient scaler runs in bfloat16.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="float16 cannot hold small gradients, so the loss is multiplied up. bfloat16 has the exponents of"
        " float32.",
        why="The scaler checks all gradients at every step, has the host wait for the result, and may skip steps.",
        detected="E0: every `autocast` of the file is given bfloat16, float16 is not spoken of, and a `GradScaler`"
        " is made"
        " without `enabled=`.",
        proven="`scaler.get_scale()` only grows; the run without it has the same losses.",
        deliberate=("The same script runs in float16 elsewhere.",),
        sources=("PyTorch's documentation of automatic mixed precision",),
    ),
    bad=Example({"train.py": _LOOP % "bfloat16"}, says="GradScaler"),
    good=Example({"train.py": _LOOP % "float16"}),
)
