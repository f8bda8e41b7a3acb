"""LOR001: adapters on modules that the model does not have."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import LINEARS, OF_READERS, known, layers_of, reader
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nuse_peft: true\n"


def check(job: Job, project: Project) -> Iterator[Said]:
    asked = job.get("lora_target_modules")
    names = [asked] if isinstance(asked, str) else asked
    if adapters(job) is False or not isinstance(names, list | tuple) or not job.is_given("lora_target_modules"):
        return
    model = known(job.get("model_name_or_path")) or reader(job.get("model_name_or_path"))
    if model is None or not all(isinstance(name, str) for name in names):
        return
    there = layers_of(model.model_type)
    plain = [name for name in names if name.replace("_", "").replace(".", "").isalnum()]
    if not there or len(plain) < len(names) or "all-linear" in names or "all" in names or not names:
        return  # patterns are matched against whole paths, which a name does not tell
    missing = [name for name in names if name.rpartition(".")[2] not in there]
    if not missing:
        return
    none = len(missing) == len(names)
    shown = ", ".join(f"`{name}`" for name in missing)
    has = ", ".join(sorted(LINEARS.get(model.model_type) or OF_READERS[model.model_type]))
    then = "so PEFT finds nothing to adapt and stops" if none else "and PEFT leaves them out without a word"
    yield Finding(
        f"{shown} {'are' if len(missing) > 1 else 'is'} no module of `{model.model_type}` (it has {has}), {then}.",
        place=job.place("lora_target_modules"),
        evidence=Evidence(Level.RESOLVED, {"missing": missing, "model type": model.model_type}),
        stake=Stake(AtStake.STOPS if none else AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Name the model's own modules, or `{job.called('lora_target_modules')}: all-linear`.",
            accuracy="The layers that were meant are trained.",
        ),
    )


RULE = Rule(
    code="LOR001",
    name="no-such-modules",
    summary="Adapters are asked for on modules that the model does not have.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="`lora_target_modules` names layers by the end of their path. Architectures call them differently: `c_attn`,"
        " `query_key_value`, `qkv_proj`.",
        why="PEFT adapts what it finds and says nothing of the rest; it stops only where nothing is found.",
        detected="E1: the names against those of the model's type, which its name tells. Patterns are not judged.",
        proven="`model.print_trainable_parameters()`, or `dynotune plan`, which counts them.",
        deliberate=("One list for several architectures.",),
        sources=("The modules of transformers' models, which a test of the project compares with the rule's table",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}lora_target_modules: [q_proj, v_proj, c_attn]\n"}, says="c_attn"),
    good=Example({"sft.yaml": f"{_SFT}lora_target_modules: [q_proj, v_proj, down_proj]\n"}),
)
