"""LOR006: adapters that Unsloth's fused kernels do not take."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import at_least, given, number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(job: Job, project: Project) -> Iterator[Said]:
    by_key = given(job, "use_unsloth")
    if job.trainer is not Trainer.UNSLOTH and not (by_key is not None and by_key.value is True):
        return
    dropout = number(job, "lora_dropout")
    if job.get("use_dora") is True:
        name, why = "use_dora", "DoRA goes through PEFT's own layers, call by call, and nothing is printed"
    elif dropout and job.is_given("lora_dropout") and at_least(job, "unsloth", 2026) is not True:
        name = "lora_dropout"
        why = "releases before 2026 patch `0 QKV layers, 0 O layers and 0 MLP layers` then, later ones pay for the mask"
    else:
        return
    yield Finding(
        f"`{job.called(name)}: {job.get(name)}` keeps the adapters off Unsloth's fused kernels: {why}.",
        place=job.place(name),
        evidence=Evidence(Level.RESOLVED, {name: job.get(name), "unsloth": job.versions.get("unsloth")}),
        stake=Stake(AtStake.TIME, 0.0, 0.1, "Unsloth issue 1265: about 10 % where the fused path is not taken"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `{job.called(name)}` to {'false' if name == 'use_dora' else 0}, if its effect is not what you are after.",
            accuracy="The adapter is another one, or regularised less.",
            measure="The line that Unsloth prints at the start: how many layers it patched.",
        ),
    )


_SCRIPT = """from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, use_dora={})
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out"), train_dataset=rows)
trainer.train()
"""
RULE = Rule(
    code="LOR006",
    name="adapters-off-the-fast-path",
    summary="Adapters that Unsloth's fused kernels do not take.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Unsloth fuses the adapters of attention and MLP into its own kernels. With DoRA, and before 2026"
        " with dropout, it"
        " leaves them to PEFT.",
        why="The switch that was meant to make it fast does nothing for these layers.",
        detected="E1: `use_dora`, or a dropout above 0 where the release is not known to take it, of a job that"
        " Unsloth trains.",
        proven="The line that Unsloth prints at the start, and `dynotune profile -- python train.py`.",
        deliberate=("Dropout or DoRA is worth more than the time.",),
        sources=("Unsloth issues 803, 2369 and 373", "its `kernels/fast_lora.py` and model patches, 2026.10"),
    ),
    bad=Example({"train.py": _SCRIPT.format("True")}, says="off Unsloth's fused kernels"),
    good=Example({"train.py": _SCRIPT.format("False")}),
)
