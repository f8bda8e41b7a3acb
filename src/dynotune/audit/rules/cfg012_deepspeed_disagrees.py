"""CFG012: a DeepSpeed file and the training arguments give one thing two values."""

from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import LARGEST, micro_batch, number
from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.deepspeed_told_twice import (
    deepspeed_decides,
    file_beside_keys,
    parameters_that_stay,
    plugin_disagrees,
)

_TRAINERS = frozenset({Trainer.TRL, Trainer.TRANSFORMERS, Trainer.LLAMA_FACTORY, Trainer.AXOLOTL})
PAIRS: Mapping[str, str] = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.weight_decay": "weight_decay",
    "optimizer.params.eps": "adam_epsilon",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
}
"""As `HfTrainerDeepSpeedConfig.trainer_config_process` compares them."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ndeepspeed: ds.json\n"
_DS = '{{\n  "zero_optimization": {{"stage": 2}},\n  "gradient_accumulation_steps": {}\n}}\n'


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from plugin_disagrees(job, project)
    if project.jobs and project.jobs[0] is job:
        yield from file_beside_keys(project)
    named = job.get("deepspeed") or job.get("deepspeed_config_file")
    if job.trainer not in (*_TRAINERS, Trainer.TORCH) or not isinstance(named, str):
        return
    config = _file(named, project)
    if config is None or config.kind != "deepspeed":
        return
    yield from _whole_batch(job, config)
    yield from parameters_that_stay(config)
    if job.trainer is not Trainer.TORCH:
        yield from deepspeed_decides(job, config)
    if job.trainer is Trainer.TORCH or not job.get("deepspeed"):
        return  # accelerate compares nothing else
    for path, name in PAIRS.items():
        theirs, setting = _at(config.values, path), job.setting(name) or _left_off(job, name)
        if theirs in (None, "auto") or setting is None or not setting.is_known or setting.value is None:
            continue
        if _same(theirs, setting.value):
            continue
        place = config.places.get(path, Place(config.file, key=path))
        given = "" if job.is_given(name) else " (the trainer's default)"
        yield Finding(
            f"`{path}` is `{_shown(theirs)}` for DeepSpeed, and `{job.called(name)}` is `{_shown(setting.value)}`{given}:"
            " transformers stops at values that disagree.",
            place=place,
            also=(setting.place if setting.place.file else job.place(name),),
            evidence=Evidence(Level.RESOLVED, {path: theirs, name: setting.value}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Write `auto` for `{path}`, so that the training arguments decide.",
                (Change(Edit.SET, place, path.rpartition(".")[2], "auto"),),
            ),
        )


def _left_off(job: Job, name: str) -> Setting | None:
    """A precision of 16 bits that nobody names, where the job asks for the other one: it is off."""
    other = {"bf16": "fp16", "fp16": "bf16"}.get(name, "")
    asked = job.setting(other)
    if asked is None or asked.value is not True or not job.is_given(other):
        return None
    return Setting(name, False, asked.place, Known.DEFAULT)


def _whole_batch(job: Job, config: ConfigFile) -> Iterator[Said]:
    """`train_batch_size`, which has to be rows x accumulation x processes: of the file itself, where it has them."""
    path = "train_batch_size"
    theirs, each, steps = config.values.get(path), micro_batch(job), number(job, "gradient_accumulation_steps")
    mine, often = (
        config.values.get(name) for name in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if job.trainer is Trainer.TORCH:
        each = mine if type(mine) is int else each if mine in (None, "auto") else None
        steps = often if type(often) is int else steps if often == "auto" else None
    if not isinstance(theirs, int) or isinstance(theirs, bool) or not each or not steps or not 1 <= steps < LARGEST:
        return
    processes = number(job, "num_processes") if job.is_given("num_processes") else None
    if processes is None and theirs % (each * int(steps)):
        comes_to = (
            f"{each} rows x {int(steps)} accumulated are {each * int(steps)} a process, of which no number makes it"
        )
    elif processes is not None and theirs != each * int(steps) * int(processes):
        all_rows = each * int(steps) * int(processes)
        comes_to = f"{each} rows x {int(steps)} accumulated x {int(processes)} processes are {all_rows}"
    else:
        return
    place = config.places.get(path, Place(config.file, key=path))
    yield Finding(
        f"`{path}` is `{theirs}` for DeepSpeed, and {comes_to}: the run stops at values that disagree.",
        place=place,
        also=(job.place("per_device_train_batch_size"),),
        evidence=Evidence(
            Level.RESOLVED, {path: theirs, "rows": each, "accumulation": int(steps), "processes": processes}
        ),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Write `auto` for `{path}`, so that the training arguments decide.",
            (Change(Edit.SET, place, path, "auto"),),
        ),
    )


def _file(named: str, project: Project) -> ConfigFile | None:
    ending = named.removeprefix("./")
    return next((one for one in project.configs if one.file == ending or one.file.endswith(f"/{ending}")), None)


def _at(values: Mapping[str, Any], path: str) -> Any:
    here: Any = values
    for part in path.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here


def _same(theirs: Any, ours: Any) -> bool:
    try:
        return float(theirs) == float(ours)
    except (TypeError, ValueError):
        return bool(theirs == ours)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


RULE = Rule(
    code="CFG012",
    name="deepspeed-disagrees",
    summary="A DeepSpeed file and the training arguments disagree.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="What DeepSpeed and the trainer both have is written twice: rows, accumulation, clipping, rate, precision;"
        " `train_batch_size` is their product with the number of processes.",
        why="transformers compares them before training and raises an error for those that differ.",
        detected="E1: the file that `deepspeed` names, key by key as transformers compares them; `auto` agrees with all."
        " Keys of accelerate's file beside the one of DeepSpeed's that it names, or against the arguments; a schedule or an"
        " optimizer of DeepSpeed's file beside another that the arguments name; parameters to be offloaded below stage 3.",
        proven='The run ends with "Please correct the following DeepSpeed config values".',
        deliberate=("A file that other programs use too, where the flags of this run are still to be matched.",),
        sources=("transformers 5.23, `integrations/deepspeed.py`",),
    ),
    bad=Example(
        {"ds.json": _DS.format(8), "sft.yaml": f"{_SFT}gradient_accumulation_steps: 4\n"}, says="transformers stops"
    ),
    good=Example({"ds.json": _DS.format('"auto"'), "sft.yaml": _SFT}),
)
