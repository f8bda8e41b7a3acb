"""What accelerate's file, DeepSpeed's file and the training arguments tell of one run, where one of them is not heard."""

from collections.abc import Iterator, Mapping

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_TRAINERS = frozenset({Trainer.TRL, Trainer.TRANSFORMERS, Trainer.LLAMA_FACTORY, Trainer.AXOLOTL})
_NOT_BESIDE = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device"),
    *("offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model"),
)
"""Keys beside `deepspeed_config_file`, and `mixed_precision`, at which accelerate stops: `_deepspeed_config_checks` of
utils/dataclasses.py in 1.6.0, which commands/launch.py tells what the file gave."""

_PAIRS = {"gradient_accumulation_steps": "gradient_accumulation_steps", "gradient_clipping": "max_grad_norm"}
"""transformers' Trainer compares them with accelerate's plugin, too: `propagate_args_to_deepspeed` of 4.53.0."""

_SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "WarmupLR": ("constant", "constant_with_warmup"),
    "WarmupDecayLR": ("linear",),
    "WarmupCosineLR": ("cosine",),
}
"""DeepSpeed's schedules, and what transformers calls the like."""


def file_beside_keys(project: Project) -> Iterator[Said]:
    """accelerate's file names DeepSpeed's, and says itself what that one is to say."""
    for config in project.configs:
        inner = config.values.get("deepspeed_config") if config.kind == "accelerate" else None
        if not isinstance(inner, Mapping) or not inner.get("deepspeed_config_file"):
            continue
        starts = [one for one in project.launches if config.file in one.configs]
        beside = [f"deepspeed_config.{key}" for key in _NOT_BESIDE if key in inner]
        given = bool(starts) and all("mixed_precision" in one.launcher_flags for one in starts)
        beside += ["mixed_precision"] if config.values.get("mixed_precision") is not None and not given else []
        if not beside:
            continue
        places = [config.places.get(key, Place(config.file, 1)) for key in beside]
        shown = ", ".join(f"`{key.rpartition('.')[2]}`" for key in beside)
        yield Finding(
            f"{shown} beside `deepspeed_config_file`: accelerate stops, since DeepSpeed's own file is to say it.",
            place=places[0],
            also=(*places[1:], config.places.get("deepspeed_config.deepspeed_config_file", Place(config.file, 1))),
            evidence=Evidence(Level.RESOLVED, {"beside": beside, "file": inner["deepspeed_config_file"]}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(
                Risk.BEHAVIOURAL, f"Take {'it' if len(beside) == 1 else 'them'} out, and say it in that file."
            ),
        )


def plugin_disagrees(job: Job, project: Project) -> Iterator[Said]:
    """Numbers of accelerate's file that the training arguments have otherwise."""
    if job.trainer not in _TRAINERS or job.get("deepspeed"):
        return
    for config in project.configs:
        inner = config.values.get("deepspeed_config") if config.kind == "accelerate" else None
        if config.file not in job.files or not isinstance(inner, Mapping) or inner.get("deepspeed_config_file"):
            continue
        if config.values.get("distributed_type") != "DEEPSPEED":
            continue
        for key, name in _PAIRS.items():
            theirs, mine = inner.get(key), job.setting(name)
            if isinstance(theirs, bool) or not isinstance(theirs, int | float) or mine is None or not mine.is_known:
                continue
            if isinstance(mine.value, bool) or not isinstance(mine.value, int | float) or mine.value == theirs:
                continue
            place = config.places.get(f"deepspeed_config.{key}", Place(config.file, 1))
            by_default = "" if job.is_given(name) else " by default"
            yield Finding(
                f"`{key}` is `{theirs}` in accelerate's `{config.file}`, and `{job.called(name)}` is"
                f" `{mine.value}`{by_default}: transformers stops at values that disagree.",
                place=place,
                also=(job.place(name),),
                evidence=Evidence(Level.RESOLVED, {key: theirs, name: mine.value}),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    f"Write `auto` for `{key}`, so that the training arguments decide.",
                    (Change(Edit.SET, place, key, "auto"),),
                ),
            )


def deepspeed_decides(job: Job, config: ConfigFile) -> Iterator[Said]:
    """A schedule, or an optimizer, of DeepSpeed's file, in whose place the arguments name another."""
    made = config.values.get("scheduler")
    kind = made.get("type") if isinstance(made, Mapping) else None
    schedule = job.setting("lr_scheduler_type")
    if isinstance(kind, str) and schedule is not None and job.is_given("lr_scheduler_type") and schedule.is_known:
        like = _SCHEDULES.get(kind)
        if like is not None and schedule.value not in like:
            yield _unheard(job, config, "scheduler", "lr_scheduler_type", f"`{kind}`", str(schedule.value))
    made = config.values.get("optimizer")
    kind = made.get("type") if isinstance(made, Mapping) else None
    optimizer = job.setting("optim")
    plain = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adafactor")
    given = optimizer is not None and job.is_given("optim") and optimizer.is_known
    if isinstance(kind, str) and optimizer is not None and given and str(optimizer.value) not in plain:
        yield _unheard(job, config, "optimizer", "optim", f"`{kind}`", str(optimizer.value))


def _unheard(job: Job, config: ConfigFile, room: str, name: str, theirs: str, mine: str) -> Finding:
    there = config.places.get(f"{room}.type", config.places.get(room, Place(config.file, 1)))
    return Finding(
        f"`{job.called(name)}: {mine}` does nothing here: `{config.file}` has {'a' if room == 'scheduler' else 'an'} {room}"
        f" of its own, {theirs}, and DeepSpeed's is taken.",
        place=there,
        also=(job.place(name),),
        evidence=Evidence(Level.RESOLVED, {room: theirs, name: mine}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take `{room}` out of the file, so that the training arguments decide, or the argument.",
            accuracy="Another schedule or optimizer then makes the updates.",
        ),
    )


def parameters_that_stay(config: ConfigFile) -> Iterator[Said]:
    """Parameters to be offloaded, at a stage that does not divide them."""
    zero = config.values.get("zero_optimization")
    if not isinstance(zero, Mapping) or zero.get("stage", 0) not in (0, 1, 2):
        return
    asked = zero.get("offload_param")
    if isinstance(asked, Mapping) and asked.get("device") in ("cpu", "nvme"):
        yield Finding(
            f"`offload_param` does nothing at stage {zero.get('stage', 0)}: DeepSpeed moves parameters off the GPU at"
            " stage 3 alone.",
            place=config.places.get("zero_optimization.offload_param", Place(config.file, 1)),
            also=(config.places.get("zero_optimization.stage", Place(config.file, 1)),),
            evidence=Evidence(Level.RESOLVED, {"stage": zero.get("stage", 0), "offload_param": asked.get("device")}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Set `stage: 3`, or take `offload_param` out."),
        )
