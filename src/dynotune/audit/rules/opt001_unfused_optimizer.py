"""OPT001: AdamW that updates tensor by tensor where one kernel would do."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.steps import loops, on_device, text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.unfused_by_hydra import unfused_by_hydra
from dynotune.audit.shapes.written_out_adam import unfused_by_settings, written_out_adam

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"

UNFUSED = frozenset({"adamw_torch", "adamw_hf"})
ADAM = ("AdamW", "Adam")


def check(project: Project, _: Project) -> Iterator[Said]:
    said: set[Place] = set()
    for job in project.jobs:
        for finding in (*_asked(job), *_made(job, project)):
            if finding.place not in said:
                said.add(finding.place)
                yield finding
    for script in project.scripts:
        for call in _optimizers(script):
            if (
                _within(call) == "configure_optimizers"
                and call.place not in said
                and not _others_update(project.scripts)
            ):
                yield _finding(call)
        if "Optimizer" in script.source and not _others_update([script]):
            yield from written_out_adam(script, project)
    yield from unfused_by_settings(project)
    if not _others_update(project.scripts):
        yield from unfused_by_hydra(project)


def _asked(job: Job) -> Iterator[Finding]:
    """By the name of an optimizer in a trainer's arguments."""
    optim = job.setting("optim")
    if (
        optim is None
        or not isinstance(optim.value, str)
        or optim.value not in UNFUSED
        or job.runs_on_gpu is False
        or job.trainer in (Trainer.DYNOTUNE, Trainer.TORCH)
    ):
        return
    yield Finding(
        f"`{job.called('optim')}: {optim.given_value or optim.value}` launches several kernels for each group of weights;"
        " the fused one computes the same in one.",
        place=job.place("optim"),
        evidence=Evidence(Level.RESOLVED, {"optim": optim.value, "given": job.is_given("optim")}),
        stake=Stake(AtStake.TIME, 0.0, 0.03, "full training of a 0.5B to 7B model; nothing measurable under LoRA"),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('optim')}: adamw_torch_fused`.",
            (job.set("optim", "adamw_torch_fused"),),
            measure="dynotune bench --config sft.yaml --set optim=adamw_torch_fused",
        ),
    )


def _made(job: Job, project: Project) -> Iterator[Finding]:
    """By a call of PyTorch's: in a loop of one's own, wherever its optimizer is made; handed to a trainer."""
    of_loop = job.trainer is Trainer.TORCH
    if not of_loop and job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL):
        return
    start = next((one for one in project.scripts if one.file == job.home.file), None)
    near = connected(start, project) if start is not None else ()
    if _others_update(near) or (of_loop and not any(map(on_device, near))):
        return
    looping = [one.file for one in near if one.file != job.home.file and any(True for _ in loops(one))]
    for script in near:
        for call in _optimizers(script) if script.file not in looping else ():
            handed = _within(call) == "create_optimizer" or (
                call.result and re.search(rf"optimizers\s*=\s*\(?\s*{re.escape(call.result)}\b", script.source)
            )
            if of_loop or handed or _stands_in_optimizers(script, call):
                yield _finding(call)
                return


def _stands_in_optimizers(script: Script, call: Call) -> bool:
    """`optimizers=(AdamW(...), None)`, in the call itself."""
    before = "\n".join(script.source.split("\n")[: call.place.line])
    lines = before.split("\n")
    lines[-1] = lines[-1][: call.place.column - 1]
    return re.search(r"\boptimizers\s*=\s*\(?\s*$", "\n".join(lines[-3:])) is not None


def _others_update(scripts: Sequence[Script]) -> bool:
    """Adapters are few weights; DeepSpeed and FSDP have kernels, or pieces, of their own."""
    return any(re.search(r"peft|lora|deepspeed|Offload|fully_shard|FSDP", code(one), re.IGNORECASE) for one in scripts)


def _optimizers(script: Script) -> Iterator[Call]:
    """Calls that make AdamW and do not say how it is to run, by its name or by `getattr(torch.optim, name)`."""
    named = {f"torch.optim.{name}" for name in ADAM}
    chosen = {
        call.result
        for call in script.calls_of("getattr")
        if call.name == "getattr" and re.match(r"getattr\(\s*(torch\.)?optim\s*,", text_at(script, call.place))
        if (name := call.arguments.get("1")) is not None and name.value in ADAM
    }
    for call in script.calls:
        if call.name in _OF_TRANSFORMERS:
            yield call  # a loop over the weights in Python, which takes none of these arguments
        elif call.name in named or (call.name and call.name in chosen):
            told = {"fused", "foreach", "capturable", "differentiable", "**"} & set(call.arguments)
            off = {name for name in told & {"fused", "foreach"} if _is_off(call.arguments[name])}
            if told == off:
                yield call


def _is_off(given: Setting) -> bool:
    """Literally, and by no flag."""
    return given.value is False and not given.others and not given.via


_OF_TRANSFORMERS = frozenset({"transformers.AdamW", "transformers.optimization.AdamW"})


def _within(call: Call) -> str:
    return next((around.name for around in reversed(call.around) if around.kind == "function"), "")


def _finding(call: Call) -> Finding:
    one_by_one = "foreach" in call.arguments
    if call.name in _OF_TRANSFORMERS:
        return Finding(
            "transformers' own `AdamW` goes over the weights one by one in Python, several kernels for each, and later"
            " releases have it no more; PyTorch's fused one computes the same in one kernel.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"optimizer": call.name, "fused": False}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC,
                "Use `torch.optim.AdamW(..., fused=True)`, and give `weight_decay`: its default is 0.01, not 0.",
                measure="dynotune profile -- python train.py",
            ),
        )
    return Finding(
        f"`{call.name.removeprefix('torch.')}` with `foreach=False` launches several kernels for each weight, one after the"
        " other; the fused one computes the same in one, and needs no more memory."
        if one_by_one
        else f"`{call.name.removeprefix('torch.')}` without `fused=True` launches several kernels for each group of weights;"
        " the fused one computes the same in one.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"optimizer": call.name, "fused": False}),
        stake=Stake(AtStake.TIME, 0.0, 0.03, "full training of a 0.5B to 7B model"),
        remedy=Remedy(
            Risk.SAFE,
            "Pass `fused=True`" + (" instead of `foreach=False`." if one_by_one else "."),
            () if one_by_one else (Change(Edit.SET, call.place, "fused", True),),
            measure="dynotune profile -- python train.py",
        ),
    )


RULE = Rule(
    code="OPT001",
    name="unfused-optimizer",
    summary="AdamW runs without its fused kernel.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="PyTorch's AdamW can update all weights in one kernel a dtype (`fused`), or by several kernels over groups.",
        why="The update moves every weight, gradient and state through memory; unfused it moves them several times.",
        detected="E1: the resolved `optim`. E0: a call of `torch.optim` (by its name, through `getattr`, or by"
        " Hydra's `_target_`) that a loop of"
        " one's own, a `configure_optimizers` or a trainer's `optimizers=` gets, in any file of the program, without a word"
        " of how it runs or with `foreach=False`, or of transformers' own `AdamW`; Adam that the project writes out weight"
        " by weight; `fused: false` of a section that AdamW is made of, and DeepSpeed's `torch_adam`. With a profile"
        " (E3), by the number of kernels of the update.",
        proven="`dynotune profile --config sft.yaml` names the optimizer's share of the step.",
        deliberate=("A parameter on the CPU or of another type than floating point, which the fused kernel refuses.",),
        sources=("PyTorch's documentation of `torch.optim.AdamW`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}optim: adamw_torch\n"}, says="fused"),
    good=Example({"sft.yaml": f"{_SFT}optim: adamw_torch_fused\n"}),
)
