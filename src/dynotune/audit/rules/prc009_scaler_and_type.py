"""PRC009: float16 under autocast and nothing scales the loss, or bfloat16 and something does."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code, connected, leads_out, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SCALES = re.compile(
    r"GradScaler|[sS]caler|loss_scale|Accelerator\(|deepspeed|Fabric\(|ShardedGradScaler|amp\.scale_loss"
)


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _missing(script, project)
    yield from _needless(script)
    yield from _alone(script, project)


def _missing(script: Script, project: Project) -> Iterator[Said]:
    if "autocast" not in script.source or any(_SCALES.search(code(one)) for one in together(script, project)):
        return
    if not any(True for _ in loops(script)):
        return
    for call in script.calls_of("autocast"):
        dtype = call.arguments.get("dtype") or call.arguments.get("1")
        device = call.arguments.get("device_type") or call.arguments.get("0")
        on_cuda = call.name == "torch.cuda.amp.autocast" or (
            device is not None and str(device.value).startswith("cuda")
        )
        half = dtype.value == "float16" if dtype is not None else on_cuda
        if not call.name.startswith("torch.") or not half or not on_cuda:
            continue
        yield Finding(
            "The forward pass runs in float16, and no `GradScaler` scales the loss: gradients below 6e-8 are"
            " zero, and most of a"
            " language model's are small.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"autocast": "float16", "scaler": None}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.NUMERIC,
                "Use `torch.bfloat16`, which needs no scaler, on any GPU since Ampere; else `torch.amp.GradScaler`.",
                accuracy="Small gradients are no longer lost.",
                measure="Count the gradients that are exactly zero.",
            ),
        )
        return


def _needless(script: Script) -> Iterator[Said]:
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
        " and waits for the answer, for nothing.",
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


_HALF = re.compile(
    r"autocast|float16|\.half\(|Accelerator\(|deepspeed|Fabric\(|\bapex\b|ShardedGradScaler|getattr\(\s*torch"
)


def _alone(script: Script, project: Project) -> Iterator[Said]:
    """The recipe of mixed precision without its first half: a scaler, and nothing that computes in float16."""
    scalers = [call for call in script.calls if call.name in ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")]
    if not scalers or any("enabled" in call.arguments for call in scalers) or ".scale(" not in script.source:
        return
    near = connected(script, project)
    if leads_out(near, project) or any(_HALF.search(code(one)) for one in near) or not any(loops(script)):
        return
    yield Finding(
        "`GradScaler` scales the loss, and no `autocast` is entered: the forward pass computes in float32, so that the run"
        " has the scaler's waits and none of float16's speed.",
        place=scalers[0].place,
        evidence=Evidence(Level.TEXT, {"autocast": None, "scaler": True}),
        stake=Stake(AtStake.TIME, 0.3, 0.8, "float32 products run past the matrix units, or as TF32 at half the rate"),
        remedy=Remedy(
            Risk.NUMERIC,
            'Run the forward pass and the loss under `torch.autocast("cuda", torch.bfloat16)` and take the scaler out; or'
            " under `torch.float16` with it.",
            effort=Effort.MINUTES,
            accuracy="Products round to 16 bits; the weights stay float32.",
            measure="dynotune profile -- python train.py",
        ),
    )


_LOOP = """import torch

for batch in train_loader:
    with torch.autocast("cuda", dtype=torch.{}):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_SCALED = """import torch

scaler = torch.amp.GradScaler("cuda")
for batch in train_loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="PRC009",
    name="scaler-and-type",
    summary="A loop computes in float16 without scaling its loss, or scales it in another type.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="float16 holds nothing below 6e-8. PyTorch's recipe scales the loss up before the backward pass"
        " and the gradients"
        " down before the update.",
        why="Without it small gradients are zero: the model learns from the large ones alone, and nothing is printed."
        " bfloat16 has the exponents of float32: there the scaler checks all gradients at every step and has the host"
        " wait, for nothing.",
        detected="E0: autocast to float16 (the default on CUDA) in a file with a training loop, and no scaler, Accelerate or"
        " DeepSpeed in the files that work together; or every `autocast` of the file is given bfloat16, float16 is not"
        " spoken of, and a `GradScaler` is made without `enabled=`; or one is made and nothing computes in 16 bits.",
        proven="Count exact zeros among the gradients, in float16 and in bfloat16.",
        deliberate=("The loss is scaled by hand.", "The same script runs in float16 elsewhere."),
        sources=("PyTorch's documentation of automatic mixed precision: gradient scaling",),
    ),
    bad=Example({"train.py": _LOOP.format("float16")}, says="no `GradScaler`"),
    good=Example({"train.py": _LOOP.format("bfloat16")}),
    also_bad=(Example({"train.py": _SCALED}, says="`GradScaler`"),),
    formerly=("PRC050",),
    former_names=(
        "scaler-with-bfloat16",
        "float16-without-a-scaler",
    ),
)
