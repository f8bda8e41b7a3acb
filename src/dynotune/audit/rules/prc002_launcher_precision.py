"""PRC002: the launcher asks for one precision and the training arguments for another."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.precision_that_nobody_gets import precision_that_nobody_gets

ARGUMENTS = (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.UNSLOTH, Trainer.AXOLOTL, Trainer.LLAMA_FACTORY)
"""Whose training arguments replace the launcher's precision with their own."""


_FLAGS = ("mixed_precision", "bf16", "fp16")


_NOTED = re.compile(
    r"(?:config|hparams|params)=\s*vars\([\w.]+\)|\b(?:print|pprint|dumps?|info|log_params|save|update|log_hyperparams)\(\s*vars\([\w.]+\)"
)
"""All flags together, as a tracker or a log gets them."""


def _done(script: Script) -> str:
    """The code without what only keeps or shows the flags."""
    return _NOTED.sub("", code(script))


def _parsed_and_dropped(job: Job, project: Project) -> Iterator[Said]:
    """The command asks the script for a precision, and the script never gives it to accelerate."""
    if job.get("mixed_precision") not in ("no", None):
        return
    for launch in project.launches:
        asked = next((launch.flags[name] for name in _FLAGS if name in launch.flags), None)
        script = next((one for one in project.scripts if one.file == launch.script), None)
        if asked is None or script is None or script.file not in job.files:
            continue
        if asked.value not in ("bf16", "fp16", True):
            continue
        made = script.calls_of("Accelerator")
        read = any(
            re.search(rf"\.{asked.name}\b|autocast|\.bfloat16\(|vars\(", _done(one))
            for one in together(script, project)
        )
        if not made or read or any("mixed_precision" in call.arguments or "**" in call.arguments for call in made):
            continue
        flag = f"--{asked.name}" + ("" if asked.value is True else f" {asked.value}")
        yield Finding(
            f"`{flag}` is a flag of the script that nothing reads: `Accelerator()` takes the launcher's, which is"
            f" `{job.get('mixed_precision') or 'no'}`, and the run is float32.",
            place=job.place("mixed_precision") if job.is_given("mixed_precision") else asked.place,
            evidence=Evidence(Level.RESOLVED, {"launcher": job.get("mixed_precision"), "asked": asked.value}),
            stake=Stake(
                AtStake.TIME, 0.5, 0.9, "float32 products run past the matrix units, or as TF32 at half the rate"
            ),
            remedy=Remedy(
                Risk.NUMERIC,
                "Give it on: `Accelerator(mixed_precision="
                + (
                    f'"{asked.name}" if args.{asked.name} else "no")`.'
                    if asked.value is True
                    else f"args.{asked.name})`."
                ),
                accuracy="Products round to bfloat16; the weights stay float32.",
            ),
            also=(made[0].place, asked.place),
        )
        return


def _replaced(job: Job, project: Project) -> Iterator[Said]:
    """accelerate's file asks for a precision, and what the script gives `Accelerator` replaces it by none."""
    own = job.setting("mixed_precision")
    if own is None or own.value != "no" or own.others or not own.place.file.endswith((".py", ".ipynb")):
        return
    for said, there, asked in _launchers(job, project):
        near = [one for one in project.scripts if one.file in job.files]
        if any(re.search(r"autocast\(|\.bfloat16\(\)|\.half\(\)|torch\.bfloat16", code(one)) for one in near):
            return
        yield Finding(
            f'`Accelerator(mixed_precision="no")` replaces {said}, and no flag of the script'
            " says otherwise: the run is float32.",
            place=own.place,
            evidence=Evidence(Level.RESOLVED, {"launcher": asked, "script": "no"}),
            stake=Stake(
                AtStake.TIME, 0.5, 0.9, "float32 products run past the matrix units, or as TF32 at half the rate"
            ),
            remedy=Remedy(
                Risk.NUMERIC,
                "Leave the argument out, or make the flag's default `None`: accelerate's file decides then.",
                accuracy="Products round to bfloat16; the weights stay float32.",
            ),
            also=(there, *own.via),
        )
        return


def _replaced_by_another(job: Job, project: Project) -> Iterator[Said]:
    """accelerate's file asks for one type of 16 bits, and what the script gives `Accelerator` is the other."""
    own = job.setting("mixed_precision")
    if own is None or own.value not in ("bf16", "fp16") or own.others or not own.place.file.endswith((".py", ".ipynb")):
        return
    for said, there, asked in _launchers(job, project):
        if asked != own.value:
            yield Finding(
                f'`Accelerator(mixed_precision="{own.value}")` replaces {said}: the run is {own.value}.',
                place=own.place,
                evidence=Evidence(Level.RESOLVED, {"launcher": asked, "script": own.value}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.NUMERIC,
                    "Leave the argument out: accelerate's file or command decides then; or ask for the same in both.",
                ),
                also=(there, *own.via),
            )
            return


def _read_by_no_launcher(job: Job, project: Project) -> Iterator[Said]:
    """accelerate's file asks for a precision, and `torchrun` or `python` starts the script, which do not read it."""
    files = [one for one in project.configs if one.kind == "accelerate"]
    if job.setting("mixed_precision") is not None or len(files) != 1 or job.holes or job.get("dtype") is not None:
        return
    asked = files[0].values.get("mixed_precision")
    launches = [one for one in project.launches if one.script in job.files]
    others = [one for one in launches if one.launcher.startswith(("torchrun", "python")) or not one.launcher]
    if asked not in ("bf16", "fp16") or not others or len(others) < len(launches):
        return
    if any("accelerate launch" in text for text in (*project.documents.values(), *project.texts.values())):
        return
    program = [one for start in project.scripts if start.file in job.files for one in together(start, project)]
    made = [call for one in program for call in one.calls_of("Accelerator")]
    given = any({"mixed_precision", "**", "*"} & set(call.arguments) for call in made)
    if not made or given or any(_IN_16.search(code(one)) for one in program):
        return
    yield Finding(
        f"`{others[0].launcher or 'python'}` does not read `{files[0].file}`: its `mixed_precision: {asked}` is nobody's,"
        " `Accelerator()` is given none, and the run is float32.",
        place=others[0].place,
        evidence=Evidence(Level.RESOLVED, {"file": asked, "launcher": others[0].launcher}),
        stake=Stake(AtStake.TIME, 0.5, 0.9, "float32 products run past the matrix units, or as TF32 at half the rate"),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Start by `accelerate launch --config_file {files[0].file}`, or write"
            f' `Accelerator(mixed_precision="{asked}")`.',
            accuracy="Products round to bfloat16; the weights stay float32.",
        ),
        also=(files[0].places.get("mixed_precision", Place(files[0].file)), made[0].place),
    )


_IN_16 = re.compile(r"autocast\(|\.bfloat16\(\)|\.half\(\)|torch\.b?float16|ACCELERATE_MIXED_PRECISION")

_ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\n"
    "mixed_precision: {}\n"
)
_LAUNCH = "accelerate launch --config_file accelerate.yaml -m trl.scripts.sft --config sft.yaml\n"
_OWN = (
    "import argparse\n\nimport torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--mixed_precision', default={})\n"
    "parser.add_argument('--epochs', type=int)\nargs = parser.parse_args()\n"
    "accelerator = Accelerator(mixed_precision=args.mixed_precision)\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
    "for batch in loader:\n    accelerator.backward(model(**batch).loss)\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nbf16: true\n"


def _launchers(job: Job, project: Project) -> Iterator[tuple[str, Place, str]]:
    """A precision that accelerate's file asks for, or the flag of its command: in words, where, and which."""
    kinds = ("bf16", "fp16", "fp8")
    for config in project.configs:
        asked = config.values.get("mixed_precision")
        if config.kind == "accelerate" and config.file in job.files and asked in kinds:
            there = config.places.get("mixed_precision", Place(config.file))
            yield f"`mixed_precision: {asked}` of `{config.file}`", there, asked
    for launch in project.launches:
        flag = launch.launcher_flags.get("mixed_precision")
        mine = launch.script in job.files and launch.file in job.files and "mixed_precision" not in launch.flags
        if flag is not None and flag.value in kinds and mine and launch.launcher.startswith("accelerate"):
            yield f"`--mixed_precision {flag.value}` of the launcher", flag.place, flag.value


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer is Trainer.TORCH:
        dropped = [*_parsed_and_dropped(job, project)]
        yield from dropped or precision_that_nobody_gets(job, project)
        yield from _replaced(job, project)
        yield from _replaced_by_another(job, project)
        yield from _read_by_no_launcher(job, project)
    else:
        yield from precision_that_nobody_gets(job, project)
    if job.trainer not in ARGUMENTS:
        return
    launcher = job.get("mixed_precision")
    if launcher not in ("bf16", "fp16", "fp8") or not job.is_given("mixed_precision"):
        return
    asked = next((name for name in ("bf16", "fp16") if job.get(name) is True), None)
    if asked is None or asked == launcher:
        return
    given = "" if job.is_given(asked) else " (the trainer's default)"
    yield Finding(
        f"The launcher asks for `mixed_precision: {launcher}`, and the training arguments for `{asked}:"
        f" true`{given}: the"
        f" arguments win, and the run is {asked}.",
        place=job.place("mixed_precision"),
        evidence=Evidence(Level.RESOLVED, {"launcher": launcher, "arguments": asked}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.NUMERIC, f"Ask for the same in both: `mixed_precision: {asked}`, or `{launcher}: true`."),
        also=(job.place(asked),),
    )


RULE = Rule(
    code="PRC002",
    name="launchers-precision-lost",
    summary="The launcher's precision is not what runs.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="`accelerate launch` hands its `mixed_precision` to the script in a variable. `TrainingArguments`"
        " replaces it"
        " where `bf16` or `fp16` is on.",
        why="Who reads the launcher's configuration believes that another precision was run than was.",
        detected="E1: the launcher's configuration joined with the job's; an option of the program for its precision"
        " (argparse, click, typer, fire, a dataclass) that asks for 16 bits and is read by nothing but a log, where nothing"
        " else computes in 16 bits.",
        proven="`dynotune profile -- ...` names the operand types of the matrix products.",
        deliberate=("One launcher configuration serves several jobs, and their own arguments are meant to win.",),
        sources=("transformers' `TrainingArguments`: `bf16` and `fp16` replace `ACCELERATE_MIXED_PRECISION`",),
    ),
    bad=Example(
        {"run.sh": _LAUNCH, "accelerate.yaml": _ACCELERATE.format("fp16"), "sft.yaml": _SFT},
        says="the arguments win",
    ),
    also_bad=(
        Example(
            {
                "train.py": _OWN.format("'no'"),
                "run.sh": "accelerate launch --mixed_precision bf16 --num_processes 2 train.py --epochs 2\n",
            },
            says="`--mixed_precision bf16` of the launcher",
        ),
    ),
    good=Example({"run.sh": _LAUNCH, "accelerate.yaml": _ACCELERATE.format("bf16"), "sft.yaml": _SFT}),
)
