"""Processes, sharding and precision that a launcher gives a job: torchrun's flags, accelerate's and DeepSpeed's files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.launch import Allocation, Launch
from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.place import Place
from dynotune.audit.read.configs.parsed import below

_ACCELERATE = ("num_processes", "num_machines", "mixed_precision", "distributed_type", "dynamo_backend", "use_cpu")
_DEEPSPEED: Mapping[str, str] = {
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.offload_optimizer.device": "offload_optimizer_device",
    "zero_optimization.offload_param.device": "offload_param_device",
}
_NO = {"no": "no", False: "no"}


def distribution(
    job: Job, launch: Launch, configs: Mapping[str, ConfigFile], allocations: Sequence[Allocation] = ()
) -> Job:
    """The job with `num_processes`, `num_machines`, `distributed_type`, `mixed_precision`, `fsdp_*` and `zero_stage`."""
    found: dict[str, Setting] = {}
    for name in launch.configs:
        config = configs.get(name)
        if config is not None and config.kind == "accelerate":
            found |= accelerate_settings(config)
            if job.trainer is not Trainer.TORCH and job.setting("gradient_accumulation_steps") is not None:
                found.pop("gradient_accumulation_steps", None)  # the arguments decide, or the run stops: CFG012
    found |= _of_flags(launch)
    shown = None
    if launch.program in _ONE_EACH and not launch.launcher:
        shown = _asked_by_variable(launch) or _shown(launch) or _allocated(launch, allocations)
    if shown is not None and "num_processes" not in found:
        found["num_processes"] = shown
    if "num_processes" not in found and not launch.launcher and launch.program.endswith(".py"):
        found["num_processes"] = Setting("num_processes", 1, launch.place, Known.DEFAULT)
    if job.trainer is Trainer.TORCH and "deepspeed_config_file" not in found:
        found |= _of_a_loop(launch, configs)
    found |= deepspeed_settings(job, found, configs)
    count = found.get("num_processes")
    if count is not None and count.is_known and "distributed_type" not in found and isinstance(count.value, int):
        sharded = job.get("fsdp") not in (None, "", [], False)
        kind = "FSDP" if sharded else "MULTI_GPU" if count.value > 1 else "NO"
        found["distributed_type"] = replace(count, name="distributed_type", value=kind, known=Known.FOLLOWED)
    own = job.setting("mixed_precision")
    if job.trainer is Trainer.TORCH and own is not None and own.value is not None:
        found.pop("mixed_precision", None)  # what a script gives `Accelerator(...)` wins over the launcher's
    files = tuple(dict.fromkeys((*job.files, *launch.configs)))
    return replace(job, settings={**job.settings, **found}, files=files)


def _of_a_loop(launch: Launch, configs: Mapping[str, ConfigFile]) -> dict[str, Setting]:
    """The file that `deepspeed.initialize` gets in a loop of one's own: that of `--deepspeed_config`, or the only one that
    there is, under DeepSpeed's launcher."""
    named = launch.flags.get("deepspeed_config")
    if named is not None:
        return {"deepspeed_config_file": replace(named, name="deepspeed_config_file")}
    there = [config for config in configs.values() if config.kind == "deepspeed"]
    if launch.launcher.endswith("deepspeed") and len(there) == 1:
        return {"deepspeed_config_file": Setting("deepspeed_config_file", there[0].file, launch.place, Known.FOLLOWED)}
    return {}


_ONE_EACH = frozenset({"llamafactory-cli train", "axolotl train"})
"""Commands that start a process for each GPU that they see."""


def _asked_by_variable(launch: Launch) -> Setting | None:
    """LLaMA-Factory starts torchrun with `NPROC_PER_NODE` and `NNODES` of the environment."""
    each, nodes = launch.variables.get("NPROC_PER_NODE"), launch.variables.get("NNODES")
    if not launch.program.startswith("llamafactory-cli") or each is None or type(each.value) is not int:
        return None
    many = nodes.value if nodes is not None else 1
    value: Any = each.value * many if isinstance(many, int) else Unknown("it depends on the machine")
    return replace(each, name="num_processes", value=value, known=Known.FOLLOWED)


def _shown(launch: Launch) -> Setting | None:
    """How many GPUs `CUDA_VISIBLE_DEVICES` shows the command; None: it does not tell."""
    shown = launch.variables.get("CUDA_VISIBLE_DEVICES")
    text = str(shown.value) if shown is not None and shown.is_known else ""
    if shown is None or not re.fullmatch(r"\d+(,\d+)*", text):
        return None
    return replace(shown, name="num_processes", value=text.count(",") + 1, known=Known.FOLLOWED)


def _allocated(launch: Launch, allocations: Sequence[Allocation]) -> Setting | None:
    """How many GPUs the job file asks for in which the command stands."""
    held = next((one for one in allocations if one.place.file == launch.file), None)
    if held is None or "CUDA_VISIBLE_DEVICES" in launch.variables:
        return None
    return Setting("num_processes", held.gpus, held.place, Known.FOLLOWED)


def distribution_of_config(job: Job, configs: Mapping[str, ConfigFile]) -> Job:
    """Of a configuration that no command names: what its own DeepSpeed file, or its launcher keys, say."""
    found = deepspeed_settings(job, {}, configs)
    return replace(job, settings={**job.settings, **found}) if found else job


def accelerate_settings(config: ConfigFile) -> dict[str, Setting]:
    """What a file of `accelerate config` sets, in accelerate's flat names."""
    found = {}
    values = config.values
    for name in _ACCELERATE:
        if name in values:
            value: Any = _NO.get(values[name], values[name]) if name == "mixed_precision" else values[name]
            found[name] = Setting(name, value, config.places.get(name, Place(config.file, key=name)))
    for room in ("fsdp_config", "deepspeed_config"):
        held = values.get(room)
        for key, value in held.items() if isinstance(held, Mapping) else ():
            place = config.places.get(below(room, key), Place(config.file, key=key))
            found[str(key)] = Setting(str(key), value, place)
    return found


def deepspeed_settings(job: Job, found: Mapping[str, Setting], configs: Mapping[str, ConfigFile]) -> dict[str, Setting]:
    """What a DeepSpeed file that the job names sets. `auto` leaves a value to the trainer, which has it."""
    named = job.setting("deepspeed") or found.get("deepspeed_config_file")
    if named is None or not named.value or not named.is_known:
        return {}
    settings = {"distributed_type": Setting("distributed_type", "DEEPSPEED", named.place, Known.FOLLOWED)}
    if isinstance(named.value, Mapping):
        values: Mapping[str, Any] = named.value
        places: Mapping[str, Place] = {}
        file = named.place.file
    else:
        config = _named(str(named.value), configs)
        if config is None:
            return settings
        values, places, file = config.values, config.places, config.file
    for path, name in _DEEPSPEED.items():
        value = _at(values, path)
        if value is not None and value != "auto":
            settings[name] = Setting(name, value, places.get(path, Place(file, key=path)), Known.FOLLOWED)
    return settings


def _named(name: str, configs: Mapping[str, ConfigFile]) -> ConfigFile | None:
    ending = name.removeprefix("./")
    same = [config for file, config in configs.items() if file == ending or file.endswith(f"/{ending}")]
    same += [config for file, config in configs.items() if file and ending.endswith(f"/{file}")]
    return same[0] if same else None


def _at(values: Mapping[str, Any], path: str) -> Any:
    here: Any = values
    for part in path.split("."):
        if not isinstance(here, Mapping):
            return None
        here = here.get(part)
    return here


def _of_flags(launch: Launch) -> dict[str, Setting]:
    flags = {**launch.launcher_flags}
    if launch.program.startswith("trl "):
        flags |= {name: launch.flags[name] for name in (*_ACCELERATE, "zero_stage") if name in launch.flags}
    found = {name: flags[name] for name in (*_ACCELERATE, "zero_stage") if name in flags}
    if "torchrun" in launch.launcher:
        each = flags.get("nproc_per_node")
        nodes = flags.get("nnodes")
        found |= _product(each, nodes, launch)
    if launch.launcher.endswith("deepspeed"):
        found["distributed_type"] = Setting("distributed_type", "DEEPSPEED", launch.place, Known.FOLLOWED)
        if "num_gpus" in flags:
            found["num_processes"] = replace(flags["num_gpus"], name="num_processes")
        elif "include" in flags and isinstance(flags["include"].value, str):
            include = flags["include"].value
            hosts = [host.partition(":")[2] for host in include.split("@") if ":" in host]
            if hosts:
                count = sum(len(gpus.split(",")) for gpus in hosts)
                found["num_processes"] = replace(
                    flags["include"], name="num_processes", value=count, known=Known.FOLLOWED
                )
    if "accelerate launch" in launch.launcher:
        for switch, kind in (("use_fsdp", "FSDP"), ("use_deepspeed", "DEEPSPEED"), ("multi_gpu", "MULTI_GPU")):
            if flags.get(switch) is not None and "distributed_type" not in found:
                found["distributed_type"] = Setting("distributed_type", kind, flags[switch].place, Known.FOLLOWED)
    return found


def processes_of_a_node(launch: Launch, configs: Mapping[str, ConfigFile]) -> Setting | None:
    """How many processes its launcher starts on each machine, a whole number; None: it is not given, or not known."""
    flags = launch.launcher_flags
    if "torchrun" in launch.launcher:
        each, nodes = flags.get("nproc_per_node"), None
    elif launch.launcher.endswith("deepspeed"):
        each, nodes = flags.get("num_gpus"), None
    elif launch.program == "llamafactory-cli train" and not launch.launcher:
        each, nodes = launch.variables.get("NPROC_PER_NODE"), None
    elif "accelerate launch" in launch.launcher or launch.program.startswith("trl "):
        flags = flags if launch.launcher else launch.flags
        found: dict[str, Setting] = {}
        for name in launch.configs:
            if name in configs and configs[name].kind == "accelerate":
                found |= accelerate_settings(configs[name])
        found |= {name: flags[name] for name in _ACCELERATE if name in flags}
        if found.get("use_cpu") is not None and found["use_cpu"].value is not False:
            return None
        each, nodes = found.get("num_processes"), found.get("num_machines")
    else:
        return None
    many = nodes.value if nodes is not None else 1
    if each is None or type(each.value) is not int or type(many) is not int or many < 1 or each.value % many:
        return None
    return replace(each, value=each.value // many)


def _product(each: Setting | None, nodes: Setting | None, launch: Launch) -> dict[str, Setting]:
    if each is None:
        return {"num_processes": Setting("num_processes", 1, launch.place, Known.DEFAULT)} if nodes is None else {}
    many = nodes.value if nodes is not None else 1
    value: Any = Unknown("it depends on the machine")
    if isinstance(each.value, int) and isinstance(many, int):
        value = each.value * many
    found = {"num_processes": replace(each, name="num_processes", value=value, known=Known.FOLLOWED)}
    if nodes is not None:
        found["num_machines"] = replace(nodes, name="num_machines")
    return found
