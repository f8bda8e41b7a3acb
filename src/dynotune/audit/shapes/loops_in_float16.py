"""A loop of one's own trains all weights in float16."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.group_of_processes import room_of
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_PART = re.compile(
    r"get_peft_model|LoraConfig|deepspeed|FSDP|FullyShardedDataParallel|requires_grad|float32|\.float\(\)|load_in_"
)
"""What trains a part of the weights, or keeps others of 32 bits."""

_ADAM = re.compile(r"(?:^|\.)(?:Adam|AdamW|NAdam|RAdam)$")
_EPSILON = 6e-8
"""Below this a float16 number is zero."""


def loops_in_float16(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is not Trainer.TORCH or job.get("use_peft") or job.get("deepspeed"):
        return
    start = next((one for one in project.scripts if one.file == job.home.file and any(loops(one))), None)
    start = start or next((one for one in project.scripts if one.file in job.files and any(loops(one))), None)
    program = connected(start, project) if start is not None else ()
    if not program or any(_PART.search(code(one)) for one in program):
        return
    sources = [code(one) for one in program]
    halved = next(
        (call for one in program for call in one.calls if _halves(call, one) and not _only_asked(call, one, sources)),
        None,
    )
    adam = next((call for one in program for call in one.calls if _ADAM.search(call.name)), None)
    if halved is None or adam is None:
        return
    small = adam.arguments.get("eps")
    if small is not None and not (isinstance(small.value, float) and small.value < _EPSILON):
        return
    accelerated = job.get("mixed_precision") == "fp16" and any("Accelerator(" in code(one) for one in program)
    scaled = accelerated or any("GradScaler" in code(one) for one in program)
    scaler = "the scaler of Accelerate" if accelerated else "`GradScaler`"
    yield Finding(
        "All weights are float16"
        + (
            f", and so are their gradients: {scaler} refuses to scale those back, and the first update stops."
            if scaled
            else " and nothing scales the loss: small gradients become zero, and Adam's `eps` of 1e-8 is zero in float16, so"
            " that it divides by nothing and weights become NaN."
        ),
        place=halved.place,
        evidence=Evidence(Level.TEXT, {"weights": "float16", "optimizer": adam.name}),
        stake=Stake(AtStake.STOPS if scaled else AtStake.RESULT),
        remedy=Remedy(
            Risk.NUMERIC,
            'Keep the weights in float32 and run the forward pass under `torch.autocast("cuda", torch.bfloat16)`.',
            breaks="Weights, gradients and states take twice the memory.",
        ),
        also=(adam.place,),
    )


_OTHERS = re.compile(r"teacher|ref|frozen|judge|reward|vae|text_encoder|ema", re.IGNORECASE)
"""What a model is called that is not trained."""


def _halves(call: Call, script: Script) -> bool:
    """`model.half()`, and a model that is loaded in float16."""
    if call.name.rpartition(".")[2] == "half" and re.search(r"model|net\b|from_pretrained", call.on, re.IGNORECASE):
        return not _OTHERS.search(call.on.partition("(")[0]) and not _OTHERS.search(_name_before(call, script))
    if not call.name.endswith("from_pretrained") or not re.search(r"Model|LM\b", call.name):
        return False
    dtype = call.arguments.get("torch_dtype") or call.arguments.get("dtype")
    half = dtype is not None and dtype.value in ("float16", "half") and not dtype.others
    return half and not _OTHERS.search(_name_before(call, script))


def _only_asked(call: Call, script: Script, sources: Sequence[str]) -> bool:
    """A model that is put in evaluation and whose weights no optimizer gets, or one that the trained weights are written
    from: it stands behind the loop."""
    lines = script.source.split("\n")
    if ".eval()" in lines[call.place.end_line - 1][call.place.end_column - 1 :]:
        return True
    name = re.search(r"([\w.]+)\s*=\s*\(?\s*$", _name_before(call, script))
    if name is not None:
        word = re.escape(name[1])
        evaluated = any(re.search(rf"(?<![\w.]){word}\.eval\(", one) for one in sources)
        trained = any(re.search(rf"(?<![\w.]){word}\.(?:train|\w*parameters)\(", one) for one in sources)
        if evaluated and not trained:
            return True
    behind = [loop for loop in loops(script) if (loop.place.end_line or loop.place.line) < call.place.line]
    return bool(behind) and room_of(call) in {room_of(one) for loop in behind for one in loop.calls}


def _name_before(call: Call, script: Script) -> str:
    """What is assigned on the line that it begins on: `teacher = ` of `teacher = AutoModel.from_pretrained(...).cuda()`."""
    return script.source.split("\n")[call.place.line - 1][: call.place.column - 1]
