"""What a run has of a setting whose key in the project's own configuration nothing reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynotune.audit.facts.names_of_settings import SAME
from dynotune.audit.facts.project import Project
from dynotune.audit.place import Place

_MEANS: Mapping[str, str] = {
    **{word: name for name, words in SAME.items() for word in words},
    **dict.fromkeys(("grad_clip", "clip_grad", "clip_grad_norm", "max_grad_norm"), "max_grad_norm"),
    **dict.fromkeys(("grad_checkpointing", "checkpointing", "gradient_checkpointing"), "gradient_checkpointing"),
    **dict.fromkeys(("scheduler", "lr_scheduler", "lr_scheduler_type"), "lr_scheduler_type"),
    **dict.fromkeys(("label_smoothing", "label_smoothing_factor"), "label_smoothing_factor"),
    **{
        name: name
        for name in (
            *("bf16", "fp16", "packing", "warmup_steps", "warmup_ratio", "weight_decay", "seed", "attn_implementation"),
            *("lora_r", "lora_alpha", "lora_dropout", "optim", "group_by_length", "use_liger_kernel", "neftune_noise_alpha"),
            *("per_device_train_batch_size", "dataloader_num_workers", "save_total_limit", "beta", "use_rslora"),
        )
    },
}  # fmt: skip
"""What a key of one's own is for, by what it is called."""


def had_instead(unread: Sequence[tuple[str, Place]], project: Project) -> Iterator[tuple[str, str, Any]]:
    """Keys whose value the only run of the project has not: the key, the run's own name of it, and what it has."""
    jobs = [job for job in project.jobs if job.files and any(file.endswith((".py", ".ipynb")) for file in job.files)]
    if len(jobs) != 1:
        return
    for name, place in unread:
        setting = jobs[0].setting(_MEANS.get(name.rpartition(".")[2], ""))
        wanted = _wanted(name, place, project)
        if setting is None or not setting.is_known or setting.others or wanted is None:
            continue
        if type(wanted) is bool and setting.value is None:
            continue
        if (
            isinstance(wanted, bool | int | float | str)
            and setting.value != wanted
            and str(setting.value) != str(wanted)
        ):
            yield name, jobs[0].called(setting.name), setting.value


def _wanted(name: str, place: Place, project: Project) -> Any:
    """What the configuration gives it; None: that is not known."""
    config = next((one for one in project.configs if one.file == place.file), None)
    for path in (name, place.key, name.rpartition(".")[2]) if config is not None else ():
        held: Any = config.values if config is not None else None
        for part in path.split("."):
            held = held.get(part) if isinstance(held, Mapping) else None
        if held is not None:
            return held
    return None
