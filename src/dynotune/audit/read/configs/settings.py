"""Given keys and a version's defaults, together, as the settings of a job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.job import Fate, GivenKey, Job, Method, Trainer
from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.place import NOWHERE, Place
from dynotune.audit.read.configs import words
from dynotune.audit.read.configs.words import Word, in_our_words
from dynotune.audit.schema import Keys
from dynotune.audit.schema.misspelt import misspelt
from dynotune.audit.schema.shipped import shipped
from dynotune.config.fates.aliases import AXOLOTL_NAMES, LLAMA_FACTORY_NAMES
from dynotune.config.fates.launcher import launcher_fate

WORDS: Mapping[Trainer, Mapping[str, tuple[Word, ...]]] = {
    Trainer.AXOLOTL: words.AXOLOTL,
    Trainer.LLAMA_FACTORY: words.LLAMA_FACTORY,
    Trainer.OPEN_INSTRUCT: words.OPEN_INSTRUCT,
}

COMPUTED: Mapping[Trainer, Mapping[str, Any]] = {
    Trainer.LLAMA_FACTORY: {"gradient_checkpointing": True},
    Trainer.AXOLOTL: {"packing": False, "gradient_checkpointing": False},
    Trainer.OPEN_INSTRUCT: {},
}
"""What a trainer's code makes of keys that nobody gives and whose default is none, by the sources of `tables/`."""


@dataclass(frozen=True, slots=True)
class Given:
    """A key with its value, wherever it is written."""

    name: str
    value: Any
    place: Place
    known: Known = Known.GIVEN
    via: tuple[Place, ...] = ()


def words_of(trainer: Trainer) -> Mapping[str, tuple[Word, ...]]:
    return WORDS.get(trainer, words.TRL)


def job_from(
    given: Iterable[Given],
    keys: Keys,
    *,
    home: Place = NOWHERE,
    files: tuple[str, ...] = (),
    ignored: Mapping[str, str] | None = None,
) -> Job:
    """The job that these keys make. Of two that say the same, the later one counts (a flag after a file).

    `ignored`: names of keys that are no settings of the trainer's, such as `env`.
    """
    given = list(given)
    own = words_of(keys.trainer)
    settings: dict[str, Setting] = {}
    native: dict[str, str] = {}
    for name, key in keys.keys.items():
        if key.default is None and not key.required:
            continue
        for ours, value in in_our_words(name, key.default, own):
            if ours != name:
                native.setdefault(ours, name)
            if not key.required and ours not in settings:
                settings[ours] = Setting(ours, value, NOWHERE, Known.DEFAULT)
    for name in own:
        if name in keys.keys:
            for word in own[name]:
                if word.name not in keys.keys:
                    native.setdefault(word.name, name)
    for ours, value in COMPUTED.get(keys.trainer, {}).items():
        settings[ours] = Setting(ours, value, NOWHERE, Known.DEFAULT)
    names = {one.name for one in given}
    for one in given:
        if one.name not in keys.keys and native.get(one.name) in names:
            continue  # another trainer's name for what stands here by this trainer's: it does nothing
        for ours, value in in_our_words(one.name, one.value, own):
            differs = ours != one.name
            settings[ours] = Setting(
                ours,
                value,
                one.place,
                one.known,
                one.name if differs else "",
                one.value if value is not one.value and value != one.value else None,
                one.via,
            )
    _computed(settings, keys)
    by_megatron = any("model_parallel_size" in one.name or one.name in ("use_mca", "use_kt") for one in given)
    return Job(
        keys.trainer,
        _method(keys, settings),
        settings,
        [judged(one, keys, ignored or {}, by_megatron, frozenset(one.name for one in given)) for one in given],
        home,
        files,
        versions=dict(keys.versions),
        pinned=dict(keys.pinned),
        native=native,
        runs_on_gpu=False if _is(settings, "use_cpu", True) else None,
    )


def judged(
    one: Given, keys: Keys, ignored: Mapping[str, str], by_megatron: bool = False, given: frozenset[str] | None = None
) -> GivenKey:
    """What the trainer's version makes of a key. `by_megatron`: Megatron's classes take part, which are not known here.
    `given`: all keys of the file, of which one may stand beside another trainer's name for the same."""
    if one.name in ignored:
        return GivenKey(one.name, one.value, one.place, Fate.KNOWN, ignored[one.name])
    verdict = keys.fate(one.name)
    if verdict.fate is Fate.UNKNOWN and keys.trainer is Trainer.LLAMA_FACTORY and by_megatron:
        return GivenKey(one.name, one.value, one.place, Fate.KNOWN)
    if verdict.fate is Fate.UNKNOWN and keys.trainer in (Trainer.TRL, Trainer.DYNOTUNE) and launcher_fate(one.name):
        return GivenKey(one.name, one.value, one.place, Fate.KNOWN)
    pinned = verdict.fate is Fate.KNOWN and keys.pinned and one.name not in keys.keys and one.name not in keys.own
    if pinned and given is not None and one.name not in keys.moved:
        # Another release than the one that was read may have more keys, but hardly another trainer's name for its own.
        whose = anothers(one.name, keys)
        beside = whose is not None and whose[1] in given and not _of_the_library(one.name, keys)
        if whose is not None and whose[1] in keys.keys and not beside:
            return GivenKey(one.name, one.value, one.place, Fate.ANOTHERS, *whose)
        if meant := misspelt(one.name, keys.keys):
            return GivenKey(one.name, one.value, one.place, Fate.UNKNOWN, instead=meant)
    if verdict.fate is Fate.UNKNOWN:
        whose = anothers(one.name, keys)
        if whose is not None:
            return GivenKey(one.name, one.value, one.place, Fate.ANOTHERS, *whose)
        return GivenKey(one.name, one.value, one.place, Fate.UNKNOWN, instead=misspelt(one.name, keys.keys))
    return GivenKey(one.name, one.value, one.place, verdict.fate, verdict.why, verdict.instead)


def anothers(name: str, keys: Keys) -> tuple[str, str] | None:
    """Why a key is another trainer's, and what this one calls it; None if it is nobody's that we know."""
    for other, table, names in (
        (Trainer.AXOLOTL, words.AXOLOTL, AXOLOTL_NAMES),
        (Trainer.LLAMA_FACTORY, words.LLAMA_FACTORY, LLAMA_FACTORY_NAMES),
    ):
        if other is keys.trainer or (name not in table and name not in names):
            continue
        ours = next((word.name for word in table.get(name, ())), "")
        return f"it is {other.value}'s name", ours if ours in keys.keys else _called(ours, keys)
    if _of_the_library(name, keys):
        whose = "transformers'" if name in shipped(Trainer.TRANSFORMERS, None)[0] else "TRL's"
        return f"it is {whose} name", _called(_in_trl(name), keys)
    return None


def _of_the_library(name: str, keys: Keys) -> bool:
    """A name of transformers' or TRL's arguments, for which this trainer has one of its own."""
    if keys.trainer not in (Trainer.AXOLOTL, Trainer.LLAMA_FACTORY) or name in keys.keys:
        return False
    return _called(_in_trl(name), keys) not in ("", name, _in_trl(name))


def _in_trl(name: str) -> str:
    """Today's name of a key that releases of TRL and transformers called otherwise."""
    return next((word.name for word in words.TRL.get(name, ())), name)


def _called(ours: str, keys: Keys) -> str:
    """The trainer's own name for what TRL calls so; itself where it has none."""
    own = words_of(keys.trainer)
    return next((theirs for theirs, found in own.items() if any(word.name == ours for word in found)), ours)


def _is(settings: Mapping[str, Setting], name: str, value: Any) -> bool:
    return name in settings and settings[name].value is value


def _computed(settings: dict[str, Setting], keys: Keys) -> None:
    """What the trainer's code makes of its own defaults."""
    if keys.trainer in (Trainer.TRL, Trainer.UNSLOTH) and settings.get("bf16") is None:
        # TRL's `_BaseConfig.__post_init__`: unset, bf16 is on unless fp16 is.
        fp16 = settings.get("fp16")
        value: Any = (
            Unknown("`fp16` decides it") if fp16 is not None and not fp16.is_known else not (fp16 and fp16.value)
        )
        if "bf16" in keys.keys:
            settings["bf16"] = Setting("bf16", value, NOWHERE, Known.DEFAULT)
    if keys.trainer is Trainer.AXOLOTL and "adapter" in keys.keys and _is(settings, "use_peft", True):
        given = settings["use_peft"]
        if given.given_value == "qlora" and not _is(settings, "load_in_4bit", True):
            settings["load_in_4bit"] = Setting("load_in_4bit", True, given.place, Known.FOLLOWED, via=(given.place,))


def _method(keys: Keys, settings: Mapping[str, Setting]) -> Method | None:
    if keys.trainer is Trainer.AXOLOTL:
        return _of_name(settings.get("rl"), Method.SFT)
    if keys.trainer is Trainer.LLAMA_FACTORY:
        return _of_name(settings.get("stage"), Method.SFT)
    return keys.method


def _of_name(setting: Setting | None, unset: Method) -> Method | None:
    if setting is None or setting.value in (None, False):
        return unset
    if not setting.is_known:
        return None
    return {"sft": Method.SFT, "dpo": Method.DPO, "ipo": Method.DPO, "pt": Method.PRETRAINING}.get(
        str(setting.value).lower(), Method.OTHER
    )
