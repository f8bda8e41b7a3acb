"""A launcher's command, the script that it starts and the configurations that it names, as one job."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.launch import Allocation, Launch
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.facts.together import imports_from
from dynotune.audit.read.configs.hydra import primary_of
from dynotune.audit.read.configs.job import NO_SETTINGS, TRAINERS, given_in
from dynotune.audit.read.configs.parsed import ROOT
from dynotune.audit.read.configs.settings import Given, job_from
from dynotune.audit.read.launchers.accepts import accepts
from dynotune.audit.read.launchers.command import plain
from dynotune.audit.read.launchers.distribution import distribution
from dynotune.audit.read.launchers.handed_on import handed_to
from dynotune.audit.read.python.declared import COMMAND_LINE
from dynotune.audit.read.python.recognised import FROM_A_COMMAND_LINE
from dynotune.audit.read.python.value import Value
from dynotune.audit.schema import Keys, Schemas

PROGRAMS: Mapping[str, tuple[Trainer, Method | None]] = {
    "trl sft": (Trainer.TRL, Method.SFT),
    "trl dpo": (Trainer.TRL, Method.DPO),
    **{f"trl {name}": (Trainer.TRL, Method.OTHER) for name in ("grpo", "kto", "reward", "rloo", "distillation")},
    "dynotune sft": (Trainer.DYNOTUNE, Method.SFT),
    "dynotune dpo": (Trainer.DYNOTUNE, Method.DPO),
    "axolotl train": (Trainer.AXOLOTL, None),
    "llamafactory-cli train": (Trainer.LLAMA_FACTORY, None),
}
_CONFIGS = {
    "trl reward": "RewardConfig",
    "trl kto": "KTOConfig",
    "trl rloo": "RLOOConfig",
    "trl distillation": "DistillationConfig",
}
_NOT_KEYS = frozenset({"config", "debug", "sweep", "config_file", "accelerate_config", "launcher", "local_rank"})
_OVERRIDE = re.compile(r"([A-Za-z_][\w/]*(?:\.[A-Za-z_]\w*)*(?:@\w+(?:\.\w+)*)?)=(.*)", re.DOTALL)
_LOADED = FROM_A_COMMAND_LINE
"""What only the script's own calls say, whatever a flag of that name is for."""

_LAUNCHERS_OWN = ("accelerate", "deepspeed")


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command may name."""

    configs: Mapping[str, ConfigFile]
    scripts: Mapping[str, Script]
    jobs: Mapping[str, Sequence[Job]]
    """What scripts make by themselves, by file."""

    schemas: Schemas
    allocations: Sequence[Allocation] = ()
    followed: str = ""
    """The script whose jobs were made with the flags of the command that is looked at."""


def whose(launch: Launch, sources: Sources) -> tuple[Trainer, Method | None] | None:
    """The trainer that a command starts by flags and a configuration; None: a script of another kind."""
    if launch.program in PROGRAMS:
        return PROGRAMS[launch.program]
    script = sources.scripts.get(launch.script)
    taken = accepts(script, sources.scripts, sources.schemas) if script is not None else None
    if taken is not None and taken.whose is not None:
        return taken.whose
    if launch.script or not launch.program.endswith((".py", "}")):
        return None
    # A script that is not here: a configuration that it is given says whose it is.
    for name in launch.configs:
        kind = sources.configs[name].kind if name in sources.configs else ""
        if kind in TRAINERS:
            return TRAINERS[kind]
    return None


def jobs_of_launch(launch: Launch, sources: Sources) -> list[Job]:
    """One for a trainer's own command; those of the script, with what its flags set, for a script."""
    made = whose(launch, sources)
    own = sources.jobs.get(launch.script, ()) or (_of_imported(launch, sources) if made is None else ())
    if made is None or own:
        followed = sources.followed == launch.script
        jobs = [_with_flags(job, launch, sources.scripts.get(launch.script), followed) for job in own]
        script = sources.scripts.get(launch.script)
        if script is not None and primary_of(script) is not None:
            jobs = [_with_overrides(job, launch) for job in jobs]
        if made is not None:
            jobs = [
                _heard(
                    _parsed(job, _of_trainer(launch, made, sources), sources.scripts.get(launch.script)),
                    launch,
                    sources,
                )
                for job in jobs
            ]
    else:
        jobs = [_of_trainer(launch, made, sources)]
    made_here = [
        distribution(_with_variables(job, launch), launch, sources.configs, sources.allocations) for job in jobs
    ]
    script = sources.scripts.get(launch.script)
    return [_spawning(job) for job in made_here] if script is not None and script.calls_of(*_SPAWNS) else made_here


def _of_imported(launch: Launch, sources: Sources) -> Sequence[Job]:
    """Of the file that the script imports and that trains, where the script itself only starts it."""
    script = sources.scripts.get(launch.script)
    if script is None:
        return ()
    seen = {script.file}
    frontier = [script]
    for _ in range(3):
        frontier = [
            one
            for one in sources.scripts.values()
            if one.file not in seen and any(imports_from(user, one) for user in frontier)
        ]
        seen |= {one.file for one in frontier}
        found = [job for one in frontier for job in sources.jobs.get(one.file, ())]
        if found:
            return found
    return ()


_SPAWNS = ("spawn", "start_processes", "notebook_launcher", "elastic_launch")


def _spawning(job: Job) -> Job:
    """Of a script that starts its processes itself: how many there are is not that one command starts one."""
    count = job.setting("num_processes")
    if count is None or count.known is not Known.DEFAULT:
        return job
    gone = ("num_processes", "distributed_type")
    return replace(job, settings={name: one for name, one in job.settings.items() if name not in gone})


def files_of(launch: Launch, sources: Sources) -> list[ConfigFile]:
    """The trainer's configurations among those that the command names."""
    named = [sources.configs[name] for name in launch.configs if name in sources.configs]
    return [config for config in named if config.kind not in _LAUNCHERS_OWN and config.kind != "llama-factory data"]


def _of_trainer(launch: Launch, made: tuple[Trainer, Method | None], sources: Sources) -> Job:
    configs = files_of(launch, sources)
    keys = sources.schemas.keys(*made, _CONFIGS.get(launch.program, ""))
    script = sources.scripts.get(launch.script)
    # A script's own flags are no keys of the trainer's; those of a script that is not here may be anything.
    flat = accepts(script, sources.scripts, sources.schemas) if script is not None else None
    all_are_keys = launch.program in PROGRAMS
    given = [one for config in configs for one in given_in(config)]
    if not all_are_keys:
        mine = flat.flags if flat is not None else frozenset[str]()
        given = [
            one
            for one in given
            if one.name in keys.keys or _was_key(one.name, keys) or (flat is not None and one.name not in mine)
        ]
    given += [
        Given(setting.name, setting.value, setting.place)
        for setting in launch.flags.values()
        if setting.name not in _NOT_KEYS and (all_are_keys or setting.name in keys.keys or _was_key(setting.name, keys))
    ]
    home = configs[0].places.get(ROOT, launch.place) if configs else launch.place
    files = tuple(dict.fromkeys((launch.file, launch.script, *launch.configs)))
    return job_from(
        given,
        keys,
        home=home,
        files=tuple(file for file in files if file),
        ignored=NO_SETTINGS,
    )


def _was_key(name: str, keys: Keys) -> bool:
    """A name that the trainer's arguments had in another release, and the script has not for something of its own."""
    return name in keys.moved and name not in keys.own


def _with_flags(job: Job, launch: Launch, script: Script | None, followed: bool = False) -> Job:
    """A script's job with the command's flags: each setting that comes from a flag gets the flag's value, unless it was
    made with them (`followed`)."""
    settings = dict(job.settings)
    for name, setting in job.settings.items():
        key = next((place.key for place in setting.via if place.key.startswith("-")), "")
        flag = key.lstrip("-").replace("-", "_")
        against = next((launch.flags[one] for one in (f"no_{flag}", f"no{flag}") if flag and one in launch.flags), None)
        if against is not None and against.value is True and setting.value is True:
            settings[name] = replace(setting, value=False, place=against.place, known=Known.FOLLOWED, others=())
        if not flag or flag not in launch.flags:
            continue
        given = launch.flags[flag]
        held = script.constants.get(key) if script is not None else None
        reached = followed and given.place in setting.via
        if reached and setting.value != given.value:
            settings[name] = replace(setting, known=Known.FOLLOWED)
            continue
        straight = reached or held is None or held.value == setting.value or isinstance(setting.value, Unknown)
        value: Any = given.value if straight else Unknown(f"it is worked out from `--{flag}`")
        if straight and given.value is True and held is not None and isinstance(held.given_value, bool):
            value = held.given_value  # `--no-bf16`, which stores False
        settings[name] = replace(
            setting, value=value, place=given.place, known=Known.FOLLOWED, via=(setting.place, *setting.via), others=()
        )
    return replace(
        job,
        settings=settings,
        files=tuple(dict.fromkeys((launch.file, launch.script, *job.files, *launch.configs))),
    )


def _heard(job: Job, launch: Launch, sources: Sources) -> Job:
    """What comes from the command line is known where the command and the configurations that it names were read."""
    if "config" in launch.flags and not files_of(launch, sources):
        return job
    return replace(job, holes=tuple(hole for hole in job.holes if not hole.why.endswith(COMMAND_LINE)))


_ADAPTERS = ("use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")


def _parsed(job: Job, flagged: Job, script: Script | None) -> Job:
    """A script's job whose arguments a parser of dataclasses makes, with what the command's flags and their defaults say."""
    settings = dict(job.settings)
    if script is not None and script.calls_of("get_peft_config"):  # TRL's own reader of these flags
        asked = {name: flagged.settings[name] for name in _ADAPTERS if flagged.is_given(name)}
        settings |= {name: setting for name, setting in asked.items() if name not in settings}
    # What the command line has of the model, where the script's arguments are known otherwise.
    settings |= {
        name: flagged.settings[name] for name in _LOADED if _is_asked_for(name, settings) and flagged.is_given(name)
    }
    job = replace(job, settings=settings)
    missing = [name for name, one in settings.items() if not one.is_known]
    if not any(settings[name].known is Known.DEFAULT for name in missing):
        return job  # the script gives its arguments itself
    for name, setting in flagged.settings.items():
        if name in missing or (name not in settings and setting.known is not Known.DEFAULT and name not in _LOADED):
            settings[name] = setting
    given = [*job.given, *flagged.given]
    return replace(job, settings=settings, given=given, home=flagged.home, native=flagged.native)


def _is_asked_for(name: str, settings: Mapping[str, Setting]) -> bool:
    """The script reads it from the command line, by a parser of dataclasses."""
    held = settings.get(name)
    return held is not None and isinstance(held.value, Unknown) and held.value.why.endswith(COMMAND_LINE)


def _with_overrides(job: Job, launch: Launch) -> Job:
    """A job of Hydra's with what the command replaces: `optim.lr=1e-5` counts, whatever the files say."""
    settings = dict(job.settings)
    for override in overrides(launch):
        for name, setting in job.settings.items():
            keys = [place.key for place in (setting.place, *setting.via) if place.file.endswith((".yaml", ".yml"))]
            if any(key and (override.name == key or override.name.endswith(f".{key}")) for key in keys):
                trail = (setting.place, *setting.via)
                settings[name] = replace(
                    setting, value=override.value, place=launch.place, known=Known.FOLLOWED, via=trail, others=()
                )
    return replace(job, settings=settings)


def given_by(launch: Launch, configs: Mapping[str, ConfigFile], flags: bool = True) -> Mapping[str, Value]:
    """What a command gives its script: values by flag, variables of the environment by `$NAME`, and configurations by number
    where a word stands alone. Without `flags`: configurations alone."""
    found: dict[str, Value] = {}
    for flag, setting in launch.flags.items() if flags else ():
        if not isinstance(setting.value, list | dict | tuple):
            found[flag] = Value(setting.value, (setting.place,))
    for name, setting in launch.variables.items() if flags else ():
        text = setting.value if isinstance(setting.value, Unknown) else setting.given_value
        found[f"${name}"] = Value(text, (setting.place,))  # a program reads texts there
    for name in launch.configs:
        if name not in configs or configs[name].kind in _LAUNCHERS_OWN:
            continue
        for flag, setting in launch.flags.items():
            if isinstance(setting.value, str) and (name == setting.value or name.endswith(setting.value.lstrip("./"))):
                found[flag] = Value(name, (setting.place,))
        behind = launch.behind
        if behind and not behind[0].startswith("-") and name.endswith(behind[0].lstrip("./")):
            found["1"] = Value(name, (launch.place,))
    return found


def each_of(
    launch: Launch, configs: Mapping[str, ConfigFile], texts: Mapping[str, str] = MappingProxyType({})
) -> list[Launch]:
    """A trainer's own command whose configuration's name has a variable in it (`axolotl train "configs/$1.yml"`, a loop over
    names), once for each file of that trainer's that it may mean, or that texts hand to its file; itself, where there is
    none."""
    if launch.configs or launch.program not in PROGRAMS:
        return [launch]
    trainer = PROGRAMS[launch.program][0]
    own = [name for name, config in configs.items() if TRAINERS.get(config.kind, (None,))[0] is trainer]
    if handed := handed_to(launch, texts, own):
        return [replace(launch, configs=(name,)) for name in handed]
    for word in launch.behind:
        if "${" not in word or not word.endswith((".yaml", ".yml")) or word.startswith("${"):
            continue
        pattern = "[^/]+".join(re.escape(part) for part in re.split(r"\$\{[^}]*\}", word.removeprefix("./")))
        meant = [
            name
            for name, config in configs.items()
            if re.fullmatch(pattern, name) and TRAINERS.get(config.kind, (None,))[0] is trainer
        ]
        if meant:
            return [replace(launch, configs=(name,)) for name in meant]
    return [launch]


def overrides(launch: Launch) -> list[Setting]:
    """Words `key=value` behind the program, as Hydra reads them; with `+` or `~` in front they are no replacements."""
    found = [_OVERRIDE.fullmatch(word) for word in launch.behind]
    return [Setting(one[1], plain(one[2]), launch.place) for one in found if one is not None]


def _with_variables(job: Job, launch: Launch) -> Job:
    return replace(job, environment={**job.environment, **launch.variables}) if launch.variables else job
