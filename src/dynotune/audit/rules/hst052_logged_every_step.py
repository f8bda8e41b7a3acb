"""HST052: every step is logged, and the host waits each time: for the device, and for all ranks where there are several."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import max_length, micro_batch, number, on_gpu
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.printed_by_deepspeed import printed_by_deepspeed

SMALL = 0.4
"""Billions of parameters below which a step is short enough for it to matter."""

SMALL_ALONE = 1.6
"""The same on one GPU, where no comment stands beside it. Unsloth's own notebooks log each of their 60 steps."""

SMALL_OF_SEVERAL = 9.0
"""The same where several ranks wait for each other, too."""

SMALL_WITH_A_TRACKER = 4.0
"""The same on one GPU where a tracker, asked for by name, is written to at each step as well."""

_SFT = "model_name_or_path: HuggingFaceTB/SmolLM2-135M\ndataset_name: data.jsonl\nmax_length: 512\n"


SMALL_PASS = 2_048
"""Tokens of a step up to which a tracker is written to several times a second, with models of `SMALL_OF_SEVERAL`, too."""


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from _of_deepspeed(job, project)
    if number(job, "logging_steps") != 1 or job.get("logging_strategy", "steps") != "steps" or not on_gpu(job):
        return
    model, steps = known(job.get("model_name_or_path")), number(job, "max_steps")
    rows, length = micro_batch(job), max_length(job)
    if job.trainer is Trainer.DYNOTUNE or not job.is_given("logging_steps") or (steps is not None and 0 < steps < 500):
        return
    ranks = int(number(job, "num_processes") or 1)
    tracker = _tracker(job)
    alone = SMALL if job.trainer is Trainer.UNSLOTH or _reports_to_nobody(job) else SMALL_ALONE
    limit = SMALL_OF_SEVERAL if ranks > 1 else SMALL_WITH_A_TRACKER if tracker else alone
    if tracker and rows and length and rows * length <= SMALL_PASS:
        limit = SMALL_OF_SEVERAL
    billions = model.billions if model is not None and model.billions else _named(job)
    if billions is None or billions > limit:
        return
    if (ranks > 1 or billions > SMALL) and (job.method not in _SHORT_STEPS or _explained(job, project)):
        return
    yield Finding(
        f"`{job.called('logging_steps')}: 1` gathers the loss over {ranks} ranks and reads it at every step of a"
        f" {billions:g}B model: all wait for the slowest, and no host can run ahead."
        if ranks > 1
        else f"`{job.called('logging_steps')}: 1` reads the loss from the device and writes to {tracker} at every step of a"
        f" {billions:g}B model: the host waits each time, before it launches the next step."
        if billions > SMALL and tracker
        else f"`{job.called('logging_steps')}: 1` reads the loss from the device at every step of a {billions:g}B"
        " model, whose steps are short: the host waits each time, and cannot run ahead.",
        place=job.place("logging_steps"),
        evidence=Evidence(
            Level.RESOLVED,
            {"logging_steps": 1, "billions": billions, "rows": rows, "length": length, "ranks": ranks},
        ),
        stake=Stake(AtStake.TIME, 0.0, None),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('logging_steps')}: 10`.",
            (job.set("logging_steps", 10),),
            breaks="The log has fewer points; each is the mean of its steps.",
            measure="dynotune profile -- python train.py",
        ),
    )


_SHORT_STEPS = (Method.SFT, Method.DPO, Method.PRETRAINING, None)
"""Where no text is generated within a step."""


_REPORTS = (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.UNSLOTH, Trainer.LLAMA_FACTORY)


def _named(job: Job) -> float | None:
    """Billions that a name tells of which nothing else is known: `glm-4-9b-chat`."""
    found = re.findall(
        r"(?<![\w.])(\d{1,3}(?:\.\d)?)b(?![a-z0-9])", str(job.get("model_name_or_path") or ""), re.IGNORECASE
    )
    return float(found[0]) if len(found) == 1 else None


def _of_deepspeed(job: Job, project: Project) -> Iterator[Finding]:
    """Its own log, which no trainer's key governs."""
    steps = number(job, "max_steps")
    if steps is not None and 0 < steps < 500:
        return
    found = printed_by_deepspeed(job, project)
    first = next((one for one in project.jobs if printed_by_deepspeed(one, project) == found), job)
    if not found or first is not job:
        return
    keys = [f"`{key}: {'true' if key.startswith('wall') else '1'}`" for key, _ in found]
    timed = any(key.startswith("wall") for key, _ in found)
    yield Finding(
        f"{' and '.join(dict.fromkeys(keys))} {'have' if len(found) > 1 else 'has'} DeepSpeed"
        + (" wait for the device around each part of a step, to time it" if timed else " print a line at every step")
        + ": the host cannot run ahead.",
        place=found[0][1],
        evidence=Evidence(Level.TEXT, {key: 1 for key, _ in found}),
        stake=Stake(AtStake.TIME, 0.0, None),
        remedy=Remedy(
            Risk.SAFE,
            "Set `steps_per_print` to 100 or more, and `wall_clock_breakdown` to false but for a run that is to be timed.",
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(place for _, place in found[1:]),
    )


def _tracker(job: Job) -> str:
    """What writes each log to a disk or a service, where the job names one; empty: none. Axolotl logs each by itself."""
    setting = job.setting("report_to")
    if setting is None or not job.is_given("report_to") or job.trainer not in _REPORTS:
        return ""
    named = setting.value[0] if isinstance(setting.value, list | tuple) and setting.value else setting.value
    return named if isinstance(named, str) and named not in ("none", "all", "") else ""


def _reports_to_nobody(job: Job) -> bool:
    """Written down: the numbers are printed alone."""
    return job.is_given("report_to") and job.get("report_to") in ("none", ["none"])


def _explained(job: Job, project: Project) -> bool:
    """A comment stands beside the setting, where its value is written."""
    setting = job.setting("logging_steps")
    places = (setting.place, *setting.via) if setting is not None else ()
    lines = [(lines_of(project.texts.get(one.file, "")), one.line) for one in places]
    return any(0 < number <= len(held) and "# " in held[number - 1] for held, number in lines)


RULE = Rule(
    code="HST052",
    name="logged-every-step",
    summary="Every step of a small model, or of several ranks, is logged.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Logging reads numbers from the device, which waits until all launched work is done.",
        why="Between logs the host launches the next step while the device works on this one. With small models launching is"
        " what takes the time, and each wait empties the queue. With several ranks the loss is gathered first, so that each"
        " step ends with a wait for the slowest.",
        detected=f"E1: `logging_steps: 1`, given, for models below {SMALL:g} billion parameters and runs of 500 steps"
        f" or more, below {SMALL_ALONE:g} billion without a comment beside it, below {SMALL_WITH_A_TRACKER:g} billion where"
        f" `report_to` names a tracker; with several processes for models below {SMALL_OF_SEVERAL:g} billion, where no"
        " comment stands beside it and a step generates no text; and DeepSpeed's `steps_per_print: 1` and"
        " `wall_clock_breakdown: true`.",
        proven="`dynotune profile -- python train.py`: the device's idle time after each step.",
        deliberate=("The loss of each step is compared with another run's.",),
        sources=(
            "transformers' Trainer: `_maybe_log_save_evaluate` gathers the loss of all ranks and reads it",
            "TRL 1.16 reads four numbers a micro-batch whatever is logged, so less is won there than elsewhere",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}logging_steps: 1\n"}, says="cannot run ahead"),
    good=Example({"sft.yaml": f"{_SFT}logging_steps: 10\n"}),
    also_bad=(
        Example(
            {
                "run.sh": "accelerate launch --num_processes 8 -m trl.scripts.sft --config sft.yaml\n",
                "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nlogging_steps: 1\n",
            },
            says="over 8 ranks",
        ),
    ),
)
