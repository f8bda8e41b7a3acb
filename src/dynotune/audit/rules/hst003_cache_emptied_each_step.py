"""HST003: memory is handed back, or the device waited for, at every step."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import Loop, loops, per_step
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_COSTS = {
    "torch.cuda.empty_cache": "gives all cached memory back to the driver, which the next step asks for again",
    "torch.cuda.ipc_collect": "looks through the memory that processes share",
    "gc.collect": "looks at every object of the process",
    "torch.cuda.synchronize": "waits until the device has nothing left to do",
    "torch.distributed.barrier": "waits for the slowest rank, which the gradients' reduction does already",
}


def check(script: Script, project: Project) -> Iterator[Said]:
    seen: dict[str, list[Call]] = {}
    for loop in loops(script):
        timed = any(
            call.name.startswith(("time.", "perf_counter")) or call.name.endswith("Event") for call in loop.calls
        )
        for call in loop.calls:
            stepping = call.each_step or _with_the_optimizer(call, loop)
            waits = call.name.endswith("synchronize")
            if stepping and call.name in _COSTS and not (timed and waits and not _trains_for_good(script, project)):
                seen.setdefault(call.name, []).append(call)
    for call in per_step(script, "compute_loss", "training_step", "on_step_end", "on_substep_end", "forward"):
        if call.name in _COSTS:
            seen.setdefault(call.name, []).append(call)
    for name, calls in seen.items():
        first, *more = calls
        waits = name.endswith(("synchronize", "barrier"))
        yield Finding(
            f"`{name}()` runs at every step: it {_COSTS[name]}"
            + (", and the host cannot launch the next step meanwhile." if waits else "."),
            place=first.place,
            evidence=Evidence(Level.TEXT, {"call": name, "times": len(calls)}),
            stake=Stake(AtStake.TIME, 0.0, 0.15, "arithmetic: tens of milliseconds a step, whatever the step takes"),
            remedy=Remedy(
                Risk.SAFE,
                "Take it out of the step."
                if name.endswith("barrier")
                else "Take it out of the step; a time over many steps needs one wait at each end."
                if waits
                else f"Take `{name}()` out of the step. Against fragmentation set"
                f" `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.",
                breaks="" if waits else "A run at the very edge of memory may need fewer tokens a micro-batch.",
                measure="dynotune profile -- python train.py",
            ),
            also=tuple(call.place for call in more),
        )


_KEEPS = re.compile(r"\b(?:save_file|save_model|save_pretrained|save_state|save_checkpoint)\(|torch\.save\(")
_MEASURES = re.compile(r"bench|profil|timing|speed|throughput|latency", re.IGNORECASE)


def _trains_for_good(script: Script, project: Project) -> bool:
    """A program that keeps what it trains, over epochs, and is no measurement: it pays for each wait beside a clock."""
    program = connected(script, project)
    measures = _MEASURES.search(script.file) or re.search(
        r"torch\.profiler|cuda\.profiler|\bbenchmark\(", script.source
    )
    return not measures and any(_KEEPS.search(code(one)) for one in program)


def _with_the_optimizer(call: Call, loop: Loop) -> bool:
    """Under the same conditions as the optimizer's step, which comes once in several micro-batches."""
    return any(step.around == call.around and step.place.line != call.place.line for step in loop.optimizer_steps)


_LOOP = """import torch

for step, batch in enumerate(train_loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="HST003",
    name="cache-emptied-each-step",
    summary="Every step empties the allocator's cache, collects garbage or waits for the device.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`torch.cuda.empty_cache()`, `gc.collect()` and `torch.cuda.synchronize()` are for moments, not for"
        " steps.",
        why="The allocator keeps memory because asking the driver for it stops the device. An emptied cache does"
        " not make a"
        " step need less at its peak.",
        detected="E0: such a call in a loop with a backward pass, or in a method that a trainer calls each step,"
        " under no"
        " condition. A wait beside a clock is taken for a measurement, but in a program that saves what it"
        " trains.",
        proven="`dynotune profile -- python train.py` before and after; the device's idle time shrinks.",
        deliberate=("Another process needs the memory between steps.",),
        sources=("PyTorch's CUDA semantics, memory management",),
    ),
    bad=Example({"train.py": f"{_LOOP}    torch.cuda.empty_cache()\n"}, says="empty_cache"),
    good=Example({"train.py": f"{_LOOP}    if step % 1000 == 0:\n        torch.cuda.empty_cache()\n"}),
)
