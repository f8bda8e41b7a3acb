"""What to do about each finding, in the settings of whoever trained, and about speed-ups that a run of ours goes without."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from dynotune.measure.kernel_classes import Work
from dynotune.model.compiled.expected_gain import why_not_faster
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.findings import Finding, Kind, Remedy
from dynotune.profile.analysis.less_padding import Advice, less_padding
from dynotune.profile.records.record import Record
from dynotune.speedups.registry import speedups

BENCH = "dynotune bench -- "
EDITED = "_edited.py"

_VARIABLE = re.compile(r"[A-Z_]+=\S+")
"""A setting of the environment, which any command takes."""

NO_EDIT = frozenset({"ranks-wait", "exposed-communication"})
"""Findings whose advice is no edit of a script, or one by which its steps hold something else."""

WORTH = 1.02
"""A ceiling below it is not worth the reader's time."""

OURS: Mapping[str, Advice] = {
    "slow-loader": ("make batches ahead", Kind.EXACT, "speedups.prefetch=on"),
    "host-reads": ("read values late: callbacks that call `.item()` every step make the host wait", Kind.EXACT, ""),
    "full-precision-products": ("compute in 16 bits", Kind.NUMERIC, "bf16=true"),
    "low-fill": ("lay documents side by side instead of padding", Kind.EXACT, "packed_execution=auto"),
    "recompiling": (
        "go without compiled layers, or find what changes shape",
        Kind.EXACT,
        "speedups.compiled_layers=off",
    ),
    "compile-limit": ("find what changes shape: `TORCH_LOGS=recompiles` names it", Kind.EXACT, ""),
    "unfused-optimizer": ("use the fused update", Kind.EXACT, "speedups.fused_optimizer=on"),
    "weights-elsewhere": ("train on the GPU", Kind.OPERATIONAL, "use_cpu=false"),
    "host-bound": ("compile the layers, so that fewer kernels are launched", Kind.EXACT, "speedups.compiled_layers=on"),
    "exposed-communication": ("take more tokens a step", Kind.BEHAVIOURAL, ""),
    "ranks-wait": ("find the slow rank: compare its clocks and its data", Kind.OPERATIONAL, ""),
    "pageable-copies": ("pin the memory that batches are made in", Kind.EXACT, ""),
    "allocator-retries": ("leave more memory free: smaller micro-batches", Kind.EXACT, "micro_batch_tokens=4096"),
    "dense-mask": ("isolate packed documents by a kernel and not by a mask", Kind.EXACT, "packed_execution=auto"),
    "padding-mask": ("lay documents side by side instead of padding", Kind.EXACT, "packed_execution=auto"),
    "attention-written-out": ("use an attention kernel", Kind.EXACT, "attn_implementation=sdpa"),
    "slow-log": ("log less often", Kind.OPERATIONAL, "logging_steps=100"),
    "slow-evaluate": ("evaluate less often or on fewer rows", Kind.OPERATIONAL, "eval_steps=1000"),
    "slow-save": ("save less often", Kind.OPERATIONAL, "save_steps=1000"),
}
"""By finding, for our own runs."""

BEYOND: Mapping[str, Advice] = {
    "slow-loader": ("batches are made ahead already: faster files, or more cores", Kind.OPERATIONAL, ""),
    "low-fill": (
        "documents lie side by side already: more of them a step fill its micro-batches",
        Kind.BEHAVIOURAL,
        "",
    ),
}
"""Where what `OURS` advises runs already. Of others nothing is known then."""

_FLATTEN = "flatten a batch instead of padding it, with a flash kernel"
THEIRS: Mapping[str, Advice] = {
    "slow-loader": ("make batches in other processes", Kind.EXACT, "dataloader_num_workers=4"),
    "host-reads": ("keep values on the device and read them every so many steps", Kind.EXACT, ""),
    "full-precision-products": ("compute in 16 bits", Kind.NUMERIC, "bf16=True"),
    "low-fill": (_FLATTEN, Kind.EXACT, "padding_free=True"),
    "recompiling": ("pad to few lengths, or leave torch.compile off", Kind.EXACT, "torch_compile=False"),
    "compile-limit": ("compile for sizes that may change (dynamic=True), or pad to few lengths", Kind.EXACT, ""),
    "unfused-optimizer": ("use the fused optimizer", Kind.EXACT, 'optim="adamw_torch_fused"'),
    "weights-elsewhere": ("keep the whole model on the GPU", Kind.OPERATIONAL, "device_map=None"),
    "host-bound": ("larger micro-batches of the same step, or compiled layers", Kind.EXACT, "torch_compile=True"),
    "exposed-communication": ("accumulate more before ranks meet", Kind.BEHAVIOURAL, "gradient_accumulation_steps"),
    "ranks-wait": ("find the slow rank: compare its clocks and its data", Kind.OPERATIONAL, ""),
    "pageable-copies": ("pin the memory of batches", Kind.EXACT, "dataloader_pin_memory=True"),
    "allocator-retries": ("leave more memory free", Kind.OPERATIONAL, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    "dense-mask": ("isolate packed documents by a varlen kernel", Kind.EXACT, 'attn_implementation="flash_attention_2"'),
    "padding-mask": (_FLATTEN, Kind.EXACT, "padding_free=True"),
    "attention-written-out": ("use an attention kernel", Kind.EXACT, 'attn_implementation="sdpa"'),
    "slow-log": ("log less often", Kind.OPERATIONAL, "logging_steps=100"),
    "slow-evaluate": ("evaluate less often or on fewer rows", Kind.OPERATIONAL, "eval_steps=1000"),
    "slow-save": ("save less often", Kind.OPERATIONAL, "save_steps=1000"),
}  # fmt: skip
"""The same for transformers and TRL; a plain loop has no settings, and the sentence alone stands."""

TRANSFORMERS: Mapping[str, Advice] = {
    "low-fill": (_FLATTEN, Kind.EXACT, "data_collator=DataCollatorWithFlattening()"),
    "padding-mask": (_FLATTEN, Kind.EXACT, "data_collator=DataCollatorWithFlattening()"),
}
"""Where transformers' own Trainer lacks a setting of TRL's."""

BY_FLASH = frozenset({"low-fill", "dense-mask", "padding-mask"})
"""What others mend by a flash kernel alone: rows that are laid side by side without one see each other."""

OF_PADDING = frozenset({"low-fill", "padding-mask"})
"""What less padding mends, also where no flash kernel is."""


def remedy(record: Record, name: str, saves: float, step: float) -> Remedy | None:
    """For a finding; None where nothing is known to help."""
    advice = _advice(record, name)
    if advice is None:
        return None
    if _runs_already(record, advice[2]):
        advice = BEYOND.get(name)
        if advice is None:
            return None
    text, kind, setting = advice
    setting = "" if record.trainer == "torch" and not _VARIABLE.fullmatch(setting) else setting
    command, first = _measured_by(record, name, setting)
    return Remedy(name, text, kind, setting, command, saves, ceiling(step, saves), first=first)


def _advice(record: Record, name: str) -> Advice | None:
    if record.trainer == "dynotune":
        return OURS.get(name)
    on_cpu = record.environment.device == "cpu"
    if name in OF_PADDING and (on_cpu or record.trainer == "torch"):
        return less_padding(record.trainer, record.method, record.arguments, flash=not on_cpu)
    if name in BY_FLASH and on_cpu:
        return None
    theirs = {**THEIRS, **TRANSFORMERS} if record.trainer == "transformers" else THEIRS
    return theirs.get(name)


def _runs_already(record: Record, setting: str) -> bool:
    """Whether the speed-up that a setting of ours asks for is in the run."""
    key, _, value = setting.partition("=")
    name = key.removeprefix("speedups.")
    return value in ("on", "auto") and any(one.name == name and one.state == "installed" for one in record.speedups)


def ceiling(step: float, saves: float) -> float:
    """Step before over step after, by Amdahl's law."""
    return step / (step - saves) if 0 < saves < step else float("inf") if saves >= step > 0 else 1.0


def ranked(record: Record, breakdown: Breakdown | None, found: Sequence[Finding]) -> tuple[Remedy, ...]:
    """Of findings and of speed-ups that the run goes without, those that could gain anything, the largest ceiling first."""
    of_findings = [one.remedy for one in found if one.remedy is not None and one.remedy.ceiling >= WORTH]
    best = {one.setting or one.text: one for one in sorted(of_findings, key=lambda one: one.ceiling)}  # a setting once
    every = list(best.values())
    said = {one.setting for one in every}
    every += [
        one
        for one in _of_registry(record, breakdown)
        if one.setting not in said and one.ceiling >= WORTH and _measured(record, one.name) is None
    ]
    return tuple(sorted(every, key=lambda one: -one.ceiling))


def ruled_out(record: Record, breakdown: Breakdown | None) -> tuple[str, ...]:
    """Speed-ups whose ceiling would have them listed, and why they are not: a line each."""
    return tuple(
        f"not advised: {one.setting} (at most {one.ceiling:.2f}x by what it touches): {why}"
        for one in _of_registry(record, breakdown)
        if one.ceiling >= WORTH and (why := _measured(record, one.name)) is not None
    )


def _measured(record: Record, name: str) -> str | None:
    """Why a speed-up gains nothing in steps like these on this GPU, where that was measured."""
    tokens = [one.processed_tokens for one in record.timed if one.processed_tokens]
    if name != "compiled_layers" or not tokens:
        return None
    device = str(record.environment.machine.get("device", ""))
    each = sum(tokens) / len(tokens) / record.environment.world
    return why_not_faster(device, bool(record.model.adapter_ranks), each)


def _of_registry(record: Record, breakdown: Breakdown | None) -> list[Remedy]:
    if breakdown is None:
        return []
    registry, found = speedups(), []
    for state in record.speedups:
        one = registry.get(state.name)
        if one is None or one.follows or state.state == "installed" or (state.state == "left out" and not state.remedy):
            continue
        saves = sum(_above(breakdown, Work(name)) for name in one.touches)
        how = f"{state.remedy}: " if state.state != "off" and state.remedy else ""
        setting = f"speedups.{state.name}=on"
        found.append(
            Remedy(
                state.name,
                f"{how}{one.summary.rstrip('.')}",
                Kind(str(one.kind)),
                setting,
                "" if how else record.measuring.replace("{change}", setting),
                saves,
                ceiling(breakdown.seconds, saves),
            )
        )
    return found


def _above(breakdown: Breakdown, work: Work) -> float:
    """Seconds that a speed-up of this class can take away at most: what is above its floor, or all of it. The floor is of
    operations as they ran; those that only move values can be fused with others, and then move nothing."""
    row = breakdown.row(work)
    return row.seconds if row.floor is None or work in (Work.ELEMENTWISE, Work.COPIES) else row.above


def _measured_by(record: Record, name: str, setting: str) -> tuple[str, str]:
    """The command that measures a change, and what is to be done before; empty where there is none."""
    how = record.measuring
    if record.trainer == "dynotune":
        return (how.replace("{change}", setting) if setting else ""), ""
    start, arms, second = how.partition(" :: ")
    if not arms:
        return "", ""
    if _VARIABLE.fullmatch(setting):
        return f"{start} :: env {setting} {start.removeprefix(BENCH)}", ""
    if "{change}" in how:
        flag = _as_flag(setting)
        return (how.replace("{change}", flag) if flag else ""), ""
    if name in NO_EDIT:
        return "", ""
    edited = next((Path(word).name for word in shlex.split(second) if word.endswith(EDITED)), "")
    script = f"{edited.removesuffix(EDITED)}.py"
    return (how, f"write it into {edited}, a copy of {script} beside it") if edited else ("", "")


def edited_name(script: str) -> str:
    """Of the copy of a script that an edit is measured in."""
    return f"{script.removesuffix('.py')}{EDITED}"


def _as_flag(setting: str) -> str:
    """Of a command: `--padding_free True`. Empty for what is no setting with a plain value: a call, a variable."""
    flag = re.fullmatch(r"([a-z_]+)=\"?(\w+)\"?", setting)
    return f"--{flag[1]} {flag[2]}" if flag and flag[2] != "None" else ""
