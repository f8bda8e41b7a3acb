"""What a job asks for, in the questions that several rules ask. None: it cannot be told."""

import re
from math import isfinite

from dynotune.audit.facts.job import GivenKey, Job, Trainer

FLASH = ("flash_attention", "kernels-community/flash-attn", "kernels-community/vllm-flash-attn")
"""How the values of `attn_implementation` begin that take packed rows as they are."""


LARGEST = 2**31
"""Rows or tokens from which on a number is taken for `no limit`."""


def on_gpu(job: Job) -> bool:
    """Not known counts as yes: an audit is often made on another machine than the training."""
    return job.runs_on_gpu is not False and job.get("use_cpu") is not True and job.get("no_cuda") is not True


def adapters(job: Job) -> bool | None:
    """Whether adapters are trained, and not all weights."""
    setting = job.setting("use_peft")
    if setting is None:
        return False if job.trainer is Trainer.AXOLOTL else None  # there `adapter` has no default
    return setting.value if isinstance(setting.value, bool) else None


def given(job: Job, name: str) -> GivenKey | None:
    """A key by the trainer's own name, for what has none in TRL's words. Of several the last counts."""
    return next((key for key in reversed(job.given) if key.name == name), None)


def number(job: Job, name: str) -> float | None:
    """A setting that is a number, finite, and is known."""
    value = job.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if isfinite(found) else None


def is_false(job: Job, name: str) -> bool:
    """A switch that is known to be off: given so, or the default."""
    return job.get(name) is False


def attention(job: Job) -> str | None:
    """`attn_implementation`, or "" where nobody names one and the model's own is taken. None: it cannot be told."""
    setting = job.setting("attn_implementation")
    if setting is None or (setting.is_known and setting.value is None):
        return "" if isinstance(job.get("model_name_or_path"), str) else None
    return setting.value if isinstance(setting.value, str) else None


def micro_batch(job: Job) -> int | None:
    """Rows of a micro-batch."""
    rows = number(job, "per_device_train_batch_size")
    return int(rows) if rows and 1 <= rows < LARGEST else None


def max_length(job: Job) -> int | None:
    """Tokens at which a row is cut."""
    tokens = number(job, "max_length")
    return int(tokens) if tokens and 1 <= tokens < LARGEST else None


def rows_of_a_step(job: Job) -> int | None:
    """Rows of an update over all processes, where every factor is known; one process where nobody says how many."""
    rows, accumulation = micro_batch(job), number(job, "gradient_accumulation_steps")
    processes = job.setting("num_processes")
    if processes is not None and not isinstance(processes.value, int):
        return None
    if rows is None or not accumulation or not 1 <= accumulation < LARGEST:
        return None
    return rows * int(accumulation) * (processes.value if processes else 1)


def version(job: Job, package: str) -> tuple[int, ...] | None:
    """The first numbers of the version that the project asks for, else of the one that the job was resolved with."""
    text = job.pinned.get(package) or job.versions.get(package, "")
    found = re.match(r"\d+(\.\d+)*", text)
    if found is None:
        return None
    numbers = tuple(int(part) for part in found[0].split("."))
    if ".dev" in text:  # all before it
        *first, last = numbers
        return (*first, last - 1, LARGEST)
    return numbers


def at_least(job: Job, package: str, *wanted: int) -> bool | None:
    """Whether the version is known to be this or later."""
    there = version(job, package)
    return None if there is None else there >= wanted
