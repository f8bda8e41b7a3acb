"""Which keys a trainer's version takes: of the installed packages, of given sources, else of the tables that are shipped.

Sources are read as text. No audited or foreign package is imported.
"""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.schema.came import DPO_KEYS, FACTORY_KEYS, SFT_KEYS, Came
from dynotune.audit.schema.came import KEYS as LATER_KEYS
from dynotune.audit.schema.classes import Key, Packages
from dynotune.audit.schema.keys import Keys, Moved, Verdict, earlier
from dynotune.audit.schema.moved import (
    AXOLOTL,
    LLAMA_FACTORY,
    NEWEST_UNDER_LLAMA_FACTORY,
    OF_PAIRS,
    OF_TEXTS,
    OLDEST_UNDER_LLAMA_FACTORY,
    TRANSFORMERS,
    TRL,
    WITHOUT_PAIRS,
)
from dynotune.audit.schema.origin import version_of_source
from dynotune.audit.schema.shipped import shipped, shipped_classes

__all__ = ["PACKAGES", "Key", "Keys", "Moved", "Schemas", "Verdict", "package_in"]

_Class = tuple[str, str, str]
"""Package, module, class."""

_TRL_SCRIPT: tuple[_Class, ...] = (
    ("trl", "trainer.model_config", "ModelConfig"),
    ("trl", "scripts.utils", "ScriptArguments"),
    ("trl", "scripts.utils", "DatasetMixtureConfig"),
)
CLASSES: Mapping[tuple[Trainer, Method | None], tuple[_Class, ...]] = {
    (Trainer.TRL, Method.SFT): (("trl", "trainer.sft_config", "SFTConfig"), *_TRL_SCRIPT),
    (Trainer.TRL, Method.DPO): (("trl", "trainer.dpo_config", "DPOConfig"), *_TRL_SCRIPT),
    (Trainer.TRL, Method.OTHER): (
        *(
            (("trl", f"trainer.{name}_config", f"{class_}Config"))
            for name, class_ in (
                ("grpo", "GRPO"),
                ("kto", "KTO"),
                ("rloo", "RLOO"),
                ("reward", "Reward"),
                ("distillation", "Distillation"),
            )
        ),
        ("trl", "scripts.grpo", "GRPOScriptArguments"),
        *_TRL_SCRIPT,
    ),
    (Trainer.TRANSFORMERS, None): (("transformers", "training_args_seq2seq", "Seq2SeqTrainingArguments"),),
    (Trainer.AXOLOTL, None): (
        ("axolotl", "utils.schemas.config", "AxolotlInputConfig"),
        *(
            ("axolotl", f"integrations.{room}.args", f"{class_}Args")
            for room, class_ in (
                ("cut_cross_entropy", "CutCrossEntropy"),
                ("densemixer", "DenseMixer"),
                ("diffusion", "Diffusion"),
                ("expert_parallel", "ExpertParallel"),
                ("grokfast", "Grokfast"),
                ("hatchery", "Hatchery"),
                ("kd", "KD"),
                ("kernels", "Kernels"),
                ("liger", "Liger"),
                ("llm_compressor", "LLMCompressor"),
                ("lm_eval", "LMEval"),
                ("mora", "Mora"),
                ("nemo_gym", "NemoGym"),
                ("spectrum", "Spectrum"),
            )
        ),
        ("axolotl", "integrations.swanlab.args", "SwanLabConfig"),
    ),
    (Trainer.LLAMA_FACTORY, None): (
        ("llamafactory", "hparams.generating_args", "GeneratingArguments"),
        ("llamafactory", "hparams.model_args", "ModelArguments"),
        ("llamafactory", "hparams.data_args", "DataArguments"),
        ("llamafactory", "hparams.training_args", "TrainingArguments"),
        ("llamafactory", "hparams.finetuning_args", "FinetuningArguments"),
    ),
    (Trainer.OPEN_INSTRUCT, Method.SFT): (("open_instruct", "finetune", "FlatArguments"),),
    (Trainer.OPEN_INSTRUCT, Method.DPO): (("open_instruct", "dpo_tune_cache", "FlatArguments"),),
}
"""Classes whose fields are a trainer's flat keys. Later ones win where two have a field of one name."""

LORA: _Class = ("peft", "tuners.lora.config", "LoraConfig")

PACKAGES = ("trl", "transformers", "peft", "accelerate", "axolotl", "llamafactory", "open_instruct")
"""Whose sources are read, by the names that they are imported by."""

_MOVED: Mapping[Trainer, Mapping[str, Moved]] = {
    Trainer.TRL: {**TRANSFORMERS, **TRL},
    Trainer.UNSLOTH: {**TRANSFORMERS, **TRL},
    Trainer.TRANSFORMERS: TRANSFORMERS,
    Trainer.LLAMA_FACTORY: {**TRANSFORMERS, **LLAMA_FACTORY},
    Trainer.AXOLOTL: AXOLOTL,
}
_FAMILIES: Mapping[Trainer, tuple[str, ...]] = {
    Trainer.LLAMA_FACTORY: ("kt_", "ray_", "moe_", "megatron_"),
}
"""Beginnings of keys that belong to a trainer's back ends, whose classes are in packages of their own."""

_EXTENDED = frozenset({Trainer.TRL, Trainer.TRANSFORMERS, Trainer.OPEN_INSTRUCT})
"""Trainers that scripts of one's own start, with arguments of one's own beside theirs."""

_DROPS_UNKNOWN = frozenset({Trainer.AXOLOTL})
"""Takes a key that it does not know, and goes on without a word."""


@dataclass(frozen=True)
class Schemas:
    """Keys by trainer and method. Made by `Schemas.of`."""

    packages: Packages
    given: Mapping[str, Path] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Versions that the audited project asks for, by package."""

    own: frozenset[str] = frozenset()
    """Fields of the project's own dataclasses."""

    _found: dict[tuple[Trainer, Method | None], Keys] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, Path] | None = None) -> "Schemas":
        """`given`: source trees by package name, which win over what is installed."""
        trees = {name: folder for name, path in (given or {}).items() if (folder := package_in(path, name)) is not None}
        return cls(Packages({**_installed(), **trees}), trees)

    def with_fields(self, own: frozenset[str]) -> "Schemas":
        """With the fields that a project's own dataclasses have: its scripts may parse them beside the trainer's."""
        return replace(self, own=own, _found={}) if own else self

    def beside(self, given: Mapping[str, Path], pinned: Mapping[str, str]) -> "Schemas":
        """With the sources that lie in the audited project, and the versions that it asks for."""
        trees = {**{name: package_in(path, name) for name, path in given.items()}, **self.given}
        found = {name: folder for name, folder in trees.items() if folder is not None}
        return replace(
            self, packages=Packages({**self.packages.folders, **found}), given=found, pinned=dict(pinned), _found={}
        )

    def keys(self, trainer: Trainer, method: Method | None = None, config: str = "") -> Keys:
        """Of an unknown method, those of supervised fine-tuning. Without keys where nothing is known of a trainer.

        config: the class that is made, of the several that TRL has for other methods (`RewardConfig`).
        """
        if (trainer, method) not in self._found:
            self._found[trainer, method] = self._keys(trainer, method)
        found = self._found[trainer, method]
        if config in WITHOUT_PAIRS and trainer in (Trainer.TRL, Trainer.UNSLOTH):
            found = replace(found, others=dict.fromkeys(OF_PAIRS, ("`DPOConfig` and its like", "")))
        elif method is Method.DPO and trainer is Trainer.TRL:
            others = {name: ("`SFTConfig`", {"max_seq_length": "max_length"}.get(name, "")) for name in OF_TEXTS}
            found = replace(found, others=others)
        own = self._names(found, config) if config and (trainer, method) == (Trainer.TRL, Method.OTHER) else frozenset()
        return replace(found, keys={name: key for name, key in found.keys.items() if name in own}) if own else found

    def _names(self, keys: Keys, config: str) -> frozenset[str]:
        """The fields of one class of several; empty where the class is not among them."""
        classes = CLASSES[keys.trainer, keys.method]
        if not any(name == config for _, _, name in classes):
            return frozenset()
        if not self.packages.folders.get("trl"):
            return shipped_classes(keys.trainer, keys.method).get(config, frozenset())
        return names_of(self, classes, config)

    def _keys(self, trainer: Trainer, method: Method | None) -> Keys:
        if trainer is Trainer.DYNOTUNE:
            return _own_keys(method)
        like = Trainer.TRL if trainer is Trainer.UNSLOTH else trainer
        at = next((at for at in ((like, method), (like, None), (like, Method.SFT)) if at in CLASSES), None)
        if at is None:
            return Keys(trainer, method, {})
        classes = CLASSES[at]
        fields: dict[str, Key] = {}
        for class_ in classes:
            fields |= self.fields(*class_)
        main = classes[0][0]
        here = {main} if main == "axolotl" else {main, "transformers"}
        versions = {name: self.version(name) for name in sorted(here)}
        moved = _MOVED.get(trainer, {})
        if not self.packages.folders.get(main):
            fields, versions = shipped(like, at[1])
            if trainer is Trainer.LLAMA_FACTORY:
                moved = self._moved_under_llama_factory()
                fields = {**{name: Key(name, "") for name in TRANSFORMERS if name not in moved}, **fields}
        return Keys(
            trainer,
            method,
            fields,
            moved,
            {name: version for name, version in versions.items() if version},
            self._source(main),
            self._other_pins(versions),
            trainer not in _DROPS_UNKNOWN,
            self.own if like in _EXTENDED else frozenset(),
            _FAMILIES.get(trainer, ()),
            came=_came(trainer, method),
        )

    def _moved_under_llama_factory(self) -> Mapping[str, Moved]:
        """What is gone from the transformers that it runs with: the one that the project asks for, else the newest that the
        release of LLaMA-Factory allows, else the oldest that today's allows."""
        asked = next(
            (to for of, to in NEWEST_UNDER_LLAMA_FACTORY if self.pinned.get("llamafactory", "").startswith(of)), ""
        )
        release = self.pinned.get("transformers") or asked or OLDEST_UNDER_LLAMA_FACTORY
        theirs = {name: moved for name, moved in TRANSFORMERS.items() if not earlier(release, moved.since)}
        return {**theirs, **LLAMA_FACTORY}

    def lora(self) -> Mapping[str, Key]:
        """PEFT's own names, as a `LoraConfig(...)` takes them."""
        return self.fields(*LORA)

    def fields(self, package: str, module: str, name: str) -> Mapping[str, Key]:
        """Of any class in a package that is here; empty where it is not."""
        return self.packages.fields(package, module, name)

    def version(self, package: str) -> str:
        """Of what was read; empty where nothing was."""
        if package in self.given:
            return version_of_source(self.given[package])
        return _installed_version(package) if package in self.packages.folders else ""

    def _source(self, package: str) -> str:
        if package in self.given:
            return f"the sources in {self.given[package].name}"
        return "installed" if package in self.packages.folders else "shipped table"

    def _other_pins(self, versions: Mapping[str, str]) -> dict[str, str]:
        return {
            name: pin
            for name, pin in self.pinned.items()
            if name in versions and not (versions[name] or "").startswith(pin.rstrip("*"))
        }


def names_of(schemas: "Schemas", classes: tuple[_Class, ...], config: str) -> frozenset[str]:
    """The fields of one class, and of those that hold beside any: the model's and the script's."""
    mine = [one for one in classes if one[2] == config or one in _TRL_SCRIPT]
    return frozenset(name for one in mine for name in schemas.fields(*one))


def _came(trainer: Trainer, method: Method | None) -> Mapping[str, Came]:
    """Keys that releases brought, of the classes that a trainer makes."""
    if trainer is Trainer.LLAMA_FACTORY:
        return FACTORY_KEYS
    if trainer not in (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.UNSLOTH):
        return {}
    if trainer is Trainer.TRANSFORMERS:
        return LATER_KEYS
    return {**LATER_KEYS, **{Method.SFT: SFT_KEYS, Method.DPO: DPO_KEYS}.get(method or Method.SFT, {})}


@functools.cache
def _installed() -> Mapping[str, Path]:
    found = {}
    for name in PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin and Path(spec.origin).name == "__init__.py":
            found[name] = Path(spec.origin).parent
    return found


def _installed_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def package_in(path: Path, name: str) -> Path | None:
    """The folder with a package's `__init__.py`, in a checkout, a `src` folder, or itself."""
    itself = (path,) if path.resolve().name == name else ()
    places = (path / "src" / name, path / name, *itself)
    return next((folder for folder in places if (folder / "__init__.py").is_file()), None)


@functools.cache
def _own_keys(method: Method | None) -> Keys:
    from dynotune.config.dpo import DPOConfig
    from dynotune.config.fates.table import DPO_FATES, SFT_FATES
    from dynotune.config.sft import SFTConfig

    model, fates = (DPOConfig, DPO_FATES) if method is Method.DPO else (SFTConfig, SFT_FATES)
    theirs = {name: Key(name, "", fate.default) for name, fate in fates.items()}
    ours = {
        name: Key(name, str(field.annotation), field.get_default(call_default_factory=True), field.is_required())
        for name, field in model.model_fields.items()
    }
    return Keys(Trainer.DYNOTUNE, method, {**theirs, **ours}, source="installed")
