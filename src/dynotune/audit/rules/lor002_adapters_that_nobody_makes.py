"""LOR002: keys of adapters are set, and all weights are trained."""

from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import adapters
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.adapter_that_nobody_takes import adapter_that_nobody_takes

KEYS = ("lora_r", "lora_alpha", "lora_target_modules", "lora_dropout", "load_in_4bit", "load_in_8bit")
SWITCH = {
    Trainer.TRL: ("use_peft", True),
    Trainer.AXOLOTL: ("adapter", "lora"),
    Trainer.LLAMA_FACTORY: ("finetuning_type", "lora"),
}

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nlora_r: 16\nlora_alpha: 32\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _without_the_switch(job, project)
    for script in project.scripts:
        yield from adapter_that_nobody_takes(script, project)


def _without_the_switch(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer not in SWITCH or adapters(job) is not False:
        return
    if any(file.endswith(".py") for file in job.files):
        return  # a script may hand over a `peft_config` of its own
    if job.trainer is Trainer.TRL and any(
        script.calls_of("LoraConfig", "get_peft_model") for script in project.scripts
    ):
        return  # the same, of a script whose way to this file was not followed
    setting = job.setting("use_peft")
    if setting is not None and setting.given_value not in (None, False, "", "full", "freeze"):
        return  # an adapter of another kind
    given = [name for name in KEYS if job.is_given(name) and job.get(name) not in (None, False, 0)]
    if not given or any(f"--{name}" in script.constants for script in project.scripts for name in given):
        return  # a script's own options, which it makes its adapters of
    key, value = SWITCH[job.trainer]
    shown = ", ".join(f"`{job.called(name)}`" for name in given)
    quantised = job.get("load_in_4bit") is True or job.get("load_in_8bit") is True
    then = "quantised weights cannot be trained, so the run stops" if quantised else "all weights are trained instead"
    chosen = setting is not None and job.is_given("use_peft")  # somebody wrote down that all weights are meant
    at_stake = AtStake.STOPS if quantised else AtStake.CLARITY if chosen else AtStake.RESULT
    written = str(value).lower() if isinstance(value, bool) else value
    yield Finding(
        f"{shown} {'are' if len(given) > 1 else 'is'} set without `{key}: {written}`: no adapter is made, and {then}.",
        place=job.place(given[0]),
        evidence=Evidence(Level.RESOLVED, {"given": given, key: None}),
        stake=Stake(at_stake),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{key}: {written}`, or take the keys of adapters out.",
            (Change(Edit.SET, job.home, key, value),),
            accuracy="Adapters are trained instead of all weights.",
        ),
        also=tuple(job.place(name) for name in given[1:]),
    )


RULE = Rule(
    code="LOR002",
    name="adapters-that-nobody-makes",
    summary="Keys of adapters are set, and no adapter is made.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`lora_r` and its like say how an adapter is made; another key says that one is made at all.",
        why="Without it they do nothing: all weights are trained, with the adapter's learning rate and all the memory.",
        detected="E1: keys of adapters that are given, and the switch as it resolves. E0: a `LoraConfig` that a program"
        " makes, no line of it reads, and no other adapter in the files that work together.",
        proven="The number of trained parameters at the beginning of the log.",
        deliberate=("A base configuration, to which a command adds the switch.",),
        sources=("TRL 1.16: `get_peft_config` returns nothing unless `use_peft`; Axolotl's `adapter`",),
    ),
    bad=Example({"sft.yaml": _SFT}, says="no adapter is made"),
    good=Example({"sft.yaml": f"{_SFT}use_peft: true\n"}),
)
