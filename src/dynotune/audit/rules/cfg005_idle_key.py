"""CFG005: a key that the trainer reads and that does nothing in this job."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import at_least, given
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call
from dynotune.audit.facts.steps import text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.keys_of_a_plugin import keys_of_a_plugin
from dynotune.audit.shapes.options_of_the_model import options_of_the_model

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: data.jsonl\n    type: chat_template\nsequence_len: 4096\n"
    "micro_batch_size: 4\n"
)
_DPO = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: pairs.jsonl\nbeta: 0.1\n"


def _off(job: Job, *names: str) -> bool:
    """Whether all of these are known to be off, by what is given or by the version's default."""
    settings = [job.setting(name) for name in names]
    return all(setting is not None and setting.is_known and setting.value in (None, False) for setting in settings)


def _is(name: str, *values: Any) -> Callable[[Job], bool]:
    return lambda job: job.get(name, "?") in values


def _steps_decide(job: Job) -> bool:
    steps = job.get("max_steps")
    return isinstance(steps, int) and not isinstance(steps, bool) and steps > 0


_NO_EVALUATION = (_is("eval_strategy", "no", "NO", False), "nothing is evaluated, since `eval_strategy` is `no`")


def _steps_warm_up(job: Job) -> bool:
    steps = job.get("warmup_steps")
    return isinstance(steps, int) and steps > 0 and not _CONSTANT[0](job)


_CONSTANT = (_is("lr_scheduler_type", "constant"), "`constant` has no warm-up, `constant_with_warmup` has")
IDLE: Mapping[str, tuple[Callable[[Job], bool], str]] = {
    "packing_strategy": (
        lambda job: _off(job, "packing") and job.get("eval_packing") is not True,
        "rows are not packed",
    ),
    "eval_packing": _NO_EVALUATION,
    "eval_steps": _NO_EVALUATION,
    "gradient_checkpointing_kwargs": (lambda job: _off(job, "gradient_checkpointing"), "checkpointing is off"),
    "num_train_epochs": (_steps_decide, "`max_steps` decides when it ends"),
    "save_steps": (_is("save_strategy", "no", "epoch"), "`save_strategy` does not save by steps"),
    "save_total_limit": (_is("save_strategy", "no"), "nothing is saved, since `save_strategy` is `no`"),
    "bnb_4bit_quant_type": (lambda job: _off(job, "load_in_4bit"), "weights are not loaded in 4 bit"),
    "use_bnb_nested_quant": (lambda job: _off(job, "load_in_4bit"), "weights are not loaded in 4 bit"),
    "logging_steps": (_is("logging_strategy", "no", "epoch"), "`logging_strategy` does not log by steps"),
    "warmup_steps": _CONSTANT,
    "warmup_ratio": _CONSTANT,
}
"""When a key does nothing, and why, in TRL's words. What belongs to adapters and to loader workers has rules of its own."""


_SWITCHES = {
    "gradient_checkpointing_kwargs": "gradient_checkpointing",
    "bnb_4bit_quant_type": "load_in_4bit",
    "use_bnb_nested_quant": "load_in_4bit",
}
"""Options that a script gives once and for all, and what they belong to."""


_MEANT: Mapping[str, str] = {
    "num_train_epochs": "take `{max_steps}` out, if whole epochs are meant",
    "eval_steps": "set `{eval_strategy}: steps`, if evaluation is meant",
    "eval_packing": "set `{eval_strategy}: steps`, if evaluation is meant",
    "save_steps": "set `{save_strategy}: steps`, if it is to save by them",
    "save_total_limit": "set `{save_strategy}: steps`, if checkpoints are meant",
    "logging_steps": "set `{logging_strategy}: steps`, if it is to log by them",
    "packing_strategy": "switch `{packing}` on, if packing is meant",
    "gradient_checkpointing_kwargs": "switch `{gradient_checkpointing}` on, if it is meant",
    "bnb_4bit_quant_type": "load the weights in 4 bit, if that is meant",
    "use_bnb_nested_quant": "load the weights in 4 bit, if that is meant",
    "warmup_steps": "set `{lr_scheduler_type}: constant_with_warmup`, if the warm-up is meant",
    "warmup_ratio": "set `{lr_scheduler_type}: constant_with_warmup`, if the warm-up is meant",
}
"""What makes the key do something."""


def _or_else(name: str, job: Job) -> str:
    """The other way, in the trainer's own names."""
    if name not in _MEANT or (name == "warmup_ratio" and not _CONSTANT[0](job)):
        return ""
    return "; or " + re.sub(r"\{(\w+)\}", lambda found: job.called(found[1]), _MEANT[name])


def _in_full(why: str, job: Job) -> str:
    """With the steps that decide."""
    return why.replace("`max_steps`", f"`{job.called('max_steps')}: {job.get('max_steps')}`")


def _by_a_flag(job: Job, switch: str) -> bool:
    """A script leaves the switch to whoever starts it: its option stands there for the times when it is on."""
    setting = job.setting(switch)
    return setting is not None and any(place.key.startswith("-") for place in (setting.place, *setting.via))


def check(job: Job, project: Project) -> Iterator[Said]:
    for name, (idle, why) in [*IDLE.items(), ("warmup_ratio", (_steps_warm_up, "`warmup_steps` wins"))]:
        setting = job.setting(name)
        if setting is None or not job.is_given(name) or not setting.is_known or setting.value in (None, False):
            continue
        if not idle(job) or (name in _SWITCHES and _by_a_flag(job, _SWITCHES[name])):
            continue
        yield Finding(
            f"`{job.called(name)}` does nothing here: {_in_full(why, job)}.",
            place=job.place(name),
            evidence=Evidence(Level.RESOLVED, {name: setting.value}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.SAFE, f"Remove it{_or_else(name, job)}.", (job.remove(name),)),
            also=(job.place("max_steps"),) if name == "num_train_epochs" else (),
        )
    yield from _padding_free(job)
    yield from _of_a_made_model(job, project)
    yield from options_of_the_model(job, project)
    yield from keys_of_a_plugin(job)
    yield from _of_another_stage(job)


_STAGES: Mapping[str, tuple[str, ...]] = {
    "pref_": ("dpo", "kto"),
    "dpo_label_smoothing": ("dpo",),
    "simpo_gamma": ("dpo",),
    "kto_": ("kto",),
    "ppo_": ("ppo",),
    "reward_model": ("ppo",),
}
"""Keys of LLaMA-Factory, by how they begin, and the stages that read them: `FinetuningArguments` of 0.9.1 to 0.9.5."""


def _of_another_stage(job: Job) -> Iterator[Said]:
    stage = given(job, "stage")
    if (
        job.trainer is not Trainer.LLAMA_FACTORY
        or stage is None
        or stage.value not in ("sft", "pt", "dpo", "kto", "ppo")
    ):
        return
    for start, stages in _STAGES.items():
        keys = [key for key in job.given if key.name.startswith(start) and key.value not in (None, False, 0)]
        if keys and stage.value not in stages:
            yield Finding(
                f"`{keys[0].name}` does nothing here: it belongs to `stage: {stages[0]}`, and this one is `{stage.value}`.",
                place=keys[0].place,
                also=(*(key.place for key in keys[1:]), stage.place),
                evidence=Evidence(Level.RESOLVED, {"key": keys[0].name, "stage": stage.value}),
                stake=Stake(AtStake.CLARITY),
                remedy=Remedy(Risk.SAFE, "Remove it, or set the stage that was meant.", (job.remove(keys[0].name),)),
            )


def _of_a_made_model(job: Job, project: Project) -> Iterator[Said]:
    """`model_init_kwargs` of a configuration, where the script hands TRL a model and not its name."""
    key = given(job, "model_init_kwargs") or job.setting("model_init_kwargs")
    if job.trainer is not Trainer.TRL or key is None or not key.value:
        return
    for script in project.scripts:
        if script.file not in job.files or script.file == key.place.file:
            continue
        for call in script.calls_of("SFTTrainer", "DPOTrainer"):
            named = re.search(r"\bmodel\s*=\s*(\w+)\s*[,)]|Trainer\(\s*(\w+)\s*,", text_at(script, call.place))
            made = [one for one in script.calls if named and one.result == (named[1] or named[2])]
            if made and all(_loads(one, project) for one in made):
                yield Finding(
                    "`model_init_kwargs` does nothing here: the script loads the model itself and hands it to the"
                    " trainer,"
                    " which reads these only where it loads one by its name.",
                    place=key.place,
                    evidence=Evidence(Level.RESOLVED, {"model": made[0].name}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Give them where the model is loaded, or hand the trainer its name.",
                        accuracy="Another type of the weights may come out.",
                    ),
                    also=(made[0].place,),
                )
                return


def _loads(call: Call, project: Project) -> bool:
    """A call that gives a model: `from_pretrained`, or a function of the project that calls it."""
    if call.name.endswith("from_pretrained"):
        return True
    last = call.name.rpartition(".")[2]
    return any(
        one.name.endswith("from_pretrained") and "Model" in one.name and any(held.name == last for held in one.around)
        for script in project.scripts
        for one in script.calls
    )


def _padding_free(job: Job) -> Iterator[Said]:
    """TRL's DPO lost padding-free batches when it was rewritten, and still takes the key."""
    if job.method is not Method.DPO:
        return
    if job.trainer is Trainer.TRL and at_least(job, "trl", 1, 0) is not False:
        name = "padding_free"
    elif job.trainer is Trainer.AXOLOTL:  # it hands the key on
        name = "dpo_padding_free"
    else:
        return
    key = given(job, name)
    on = key.value if key is not None else job.get(name)
    if on is not True:
        return
    place = key.place if key is not None else job.place(name)
    yield Finding(
        f"`{name}: true` does nothing: TRL's DPO switches it off with one warning and pads pairs as before.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {name: True, "trl": job.versions.get("trl")}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.SAFE,
            "Take it out. `dynotune dpo` lays pairs out without padding, each prompt once.",
            (Change(Edit.REMOVE, place, name),),
        ),
    )


RULE = Rule(
    code="CFG005",
    name="idle-key",
    summary="A key does nothing in this job.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="A key that belongs to something that is switched off: `packing_strategy` without packing, `eval_steps`"
        " without evaluation, `save_total_limit` where nothing is saved, `warmup_ratio` with `lr_scheduler_type: constant`,"
        " keys of a plugin of Axolotl's that `plugins` does not list, an option of TRL's `ModelConfig` where the script"
        " loads the model without it, `padding_free` in TRL's DPO since 1.0.",
        why="Who reads the file believes that it happens.",
        detected="E1: the key is given, and what it belongs to is off, by what is given or by the version's default.",
        proven="Take it out: the losses of the first steps are the same to the last digit.",
        deliberate=("A default for the times when the switch is given on the command line.",),
        sources=("the sources of TRL 1.16 and transformers 5.23", "TRL pull requests 3906 and 7014"),
    ),
    bad=Example({"sft.yaml": f"{_SFT}packing: false\npacking_strategy: wrapped\n"}, says="rows are not packed"),
    good=Example({"sft.yaml": f"{_SFT}packing: true\npacking_strategy: bfd\n"}),
    also_bad=(
        Example({"dpo.yaml": f"{_DPO}padding_free: true\n"}, says="does nothing"),
        Example({"run.yml": f"{_AXOLOTL}liger_rms_norm: true\nliger_rope: true\n"}, says="`plugins` does not list"),
    ),
    formerly=("DPO003",),
    former_names=("no-padding-free-dpo",),
)
