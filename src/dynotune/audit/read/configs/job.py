"""The job that a configuration file makes by itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.place import Place
from dynotune.audit.read.configs.parsed import ROOT, below
from dynotune.audit.read.configs.settings import Given, job_from
from dynotune.audit.schema import Schemas

TRAINERS: Mapping[str, tuple[Trainer, Method | None]] = {
    "trl sft": (Trainer.TRL, Method.SFT),
    "trl dpo": (Trainer.TRL, Method.DPO),
    "trl other": (Trainer.TRL, Method.OTHER),
    "dynotune sft": (Trainer.DYNOTUNE, Method.SFT),
    "dynotune dpo": (Trainer.DYNOTUNE, Method.DPO),
    "axolotl": (Trainer.AXOLOTL, None),
    "llama-factory": (Trainer.LLAMA_FACTORY, None),
    "open-instruct": (Trainer.OPEN_INSTRUCT, None),
    "transformers": (Trainer.TRANSFORMERS, None),
}
"""Whose job a kind of file makes."""

NO_SETTINGS = {"env": "variables of the environment", "config": "the configuration itself"}
HYDRA_TARGETS: Mapping[str, tuple[Trainer, Method | None]] = {
    "SFTConfig": (Trainer.TRL, Method.SFT),
    "DPOConfig": (Trainer.TRL, Method.DPO),
    "TrainingArguments": (Trainer.TRANSFORMERS, None),
    "Seq2SeqTrainingArguments": (Trainer.TRANSFORMERS, None),
}
_HYDRA_OWN = frozenset({"_target_", "_partial_", "_recursive_", "_convert_", "_args_"})


def job_of(config: ConfigFile, schemas: Schemas, whose: tuple[Trainer, Method | None] | None = None) -> Job | None:
    """The job of a file; None where it makes none by itself (accelerate, DeepSpeed, lists of data, the unknown).

    `whose`: what a command that names the file says of it; else its own keys decide.
    """
    if config.kind == "hydra" and whose is None:
        return _hydra(config, schemas)
    whose = whose or TRAINERS.get(config.kind)
    if whose is None or _only_runs(config):
        return None
    return job_from(
        given_in(config),
        schemas.keys(*whose),
        home=config.places.get(ROOT, Place(config.file)),
        files=(config.file,),
        ignored=NO_SETTINGS,
    )


def given_in(config: ConfigFile) -> Iterator[Given]:
    """The flat keys of a file."""
    for key, value in config.values.items():
        yield Given(str(key), value, config.places.get(str(key), Place(config.file, key=str(key))))


def _only_runs(config: ConfigFile) -> bool:
    """A file of LLaMA-Factory for exporting, chatting or serving, not for training."""
    return config.kind == "llama-factory" and not any(
        config.values.get(key) for key in ("do_train", "output_dir", "learning_rate", "num_train_epochs", "stage")
    )


def _hydra(config: ConfigFile, schemas: Schemas) -> Job | None:
    found = next(_targets(config.values, ROOT), None)
    if found is None:
        return None
    path, mapping, whose = found
    given = [
        Given(key, value, config.places.get(below(path, key), Place(config.file, key=key)))
        for key, value in mapping.items()
        if key not in _HYDRA_OWN
    ]
    home = config.places.get(path or ROOT, Place(config.file))
    return job_from(given, schemas.keys(*whose), home=home, files=(config.file,))


def _targets(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any], tuple[Trainer, Method | None]]]:
    if isinstance(value, Mapping):
        target = value.get("_target_")
        if isinstance(target, str) and target.rpartition(".")[2] in HYDRA_TARGETS:
            yield path, value, HYDRA_TARGETS[target.rpartition(".")[2]]
        for key, child in value.items():
            yield from _targets(child, below(path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _targets(child, below(path, index))
