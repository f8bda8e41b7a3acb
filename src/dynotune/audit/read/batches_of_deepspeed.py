"""The micro-batch and the accumulation of a loop of one's own that DeepSpeed's configuration has, and no loader's call."""

from collections.abc import Mapping
from dataclasses import replace

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.setting import Known, Setting

_KEYS = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


def with_batches_of_deepspeed(job: Job, configs: Mapping[str, ConfigFile]) -> Job:
    """The job with both where one configuration of its files has them; as it is where several do."""
    if job.trainer is not Trainer.TORCH:
        return job
    held = [
        (configs[file], path.removesuffix("train_micro_batch_size_per_gpu"))
        for file in job.files
        if file in configs
        for path in configs[file].places
        if path.rpartition(".")[2] == "train_micro_batch_size_per_gpu"
    ]
    if len(held) != 1:
        return job
    config, within = held[0]
    more = {}
    for key, name in _KEYS.items():
        value, place = config.at(f"{within}{key}"), config.places.get(f"{within}{key}")
        if type(value) is int and place is not None and name not in job.settings:
            more[name] = Setting(name, value, place, Known.FOLLOWED, key)
    return replace(job, settings={**job.settings, **more}) if more else job
