"""DPO001: the reference model is held, or run, although its log-probabilities never change."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import adapters, number, on_gpu
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of, text_at
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.ligers_loss_refused import trained_by
from dynotune.audit.shapes.reference_in_the_loop import reference_in_the_loop

SHARE = 0.29
"""Of a step that the reference took: 320 against 228 ms, 2 pairs, 7B LoRA."""

_DPO = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: pairs.jsonl\nbeta: 0.1\nuse_peft: true\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_a_trainer(job, project)
    for script in project.scripts:
        yield from reference_in_the_loop(script, project)


def _of_a_trainer(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer not in (Trainer.TRL, Trainer.UNSLOTH, Trainer.AXOLOTL) or not on_gpu(job):
        return
    if job.method is not Method.DPO and trained_by(job, project) not in ("KTO", "BCO"):
        return
    yield from _second(job, project)
    if job.method is not Method.DPO and not job.is_given("num_train_epochs"):
        return
    setting = job.setting("precompute_ref_log_probs")
    axolotl = job.trainer is Trainer.AXOLOTL and not job.pinned  # which has the key, off where nobody gives it
    off = setting.value is False or (axolotl and setting.value is None) if setting is not None else axolotl
    if _is_a_shell(job, project):
        return
    if not off or job.get("sync_ref_model") is True:
        return
    lora, epochs, model = _lora(job, project), number(job, "num_train_epochs"), known(job.get("model_name_or_path"))
    key = job.called("precompute_ref_log_probs")
    facts = {"adapters": lora, "epochs": epochs, key: False}
    if lora is False and model is not None and model.billions:
        half = not _loaded_untyped(job, project) and (
            job.get("dtype") in ("bfloat16", "float16") or (job.trainer is Trainer.AXOLOTL and job.get("bf16"))
        )
        bytes_each = 2 if half else 4
        gib = model.billions * 1e9 * bytes_each / 2**30
        stake = Stake(AtStake.MEMORY, gib, gib, f"parameters x {bytes_each} bytes")
        says = f"a second model stays in memory ({gib:.0f} GiB) and runs at every step"
    elif lora and epochs is not None and epochs > 1 and (number(job, "max_steps") or -1) <= 0:
        high = SHARE * (epochs - 1) / epochs
        stake = Stake(AtStake.TIME, high / 2, high, "H200, 7B LoRA, 2 pairs: 320 against 228 ms a step (the baseline)")
        says = f"the reference runs again at every step of {epochs:g} epochs"
    elif lora is False and epochs is not None and epochs > 1 and (number(job, "max_steps") or -1) <= 0:
        stake = Stake(AtStake.MEMORY)
        says = f"a second model stays in memory and runs again at every step of {epochs:g} epochs"
    else:
        return  # in one epoch each is needed once either way
    yield Finding(
        f"`{key}` is off: {says}, for log-probabilities that never change.",
        place=job.place("precompute_ref_log_probs"),
        evidence=Evidence(Level.RESOLVED, facts),
        stake=stake,
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{key}: true`, or train with `dynotune dpo`, which computes them once and checks them at step 0.",
            (job.set("precompute_ref_log_probs", True),),
            breaks="Set-up takes a pass over the data (54 s for 160 pairs in one measurement). See DPO002 for its"
            " cache.",
            accuracy="They come from other kernels than the policy's, within rounding.",
            measure="dynotune bench --config dpo.yaml",
        ),
        also=(*_made(job, project), *((job.place("num_train_epochs"),) if job.is_given("num_train_epochs") else ())),
    )


def _lora(job: Job, project: Project) -> bool | None:
    """Whether adapters are trained; not, where a script that trains says nothing of any."""
    told = adapters(job)
    scripts = [one for one in project.scripts if one.file in job.files]
    silent = scripts and not any(re.search(r"peft|lora|adapter", one.source, re.IGNORECASE) for one in scripts)
    return False if told is None and silent and not job.holes else told


def _is_a_shell(job: Job, project: Project) -> bool:
    """Of a command whose configuration was not found: what it sets is not known."""
    return any(
        launch.place == job.home and not launch.configs and "config" in launch.flags for launch in project.launches
    )


def _loaded_untyped(job: Job, project: Project) -> bool:
    """The reference is loaded by a call of its own that names no type, by a transformers that then makes float32 of it."""
    pinned = project.pinned("transformers")
    if pinned is None or pinned >= (5,):
        return False
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("DPOTrainer", "KTOTrainer", "BCOTrainer"):
            named = re.search(r"\bref_model\s*=\s*(\w+)", text_at(script, call.place))
            for load in script.calls_of("from_pretrained") if named is not None else ():
                if named is not None and load.result == named[1]:
                    return not {"torch_dtype", "dtype", "quantization_config", "**"} & set(load.arguments)
    return False


def _made(job: Job, project: Project) -> Iterator[Place]:
    """Where the job's script makes the reference and hands it to the trainer."""
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("DPOTrainer", "KTOTrainer", "BCOTrainer"):
            named = re.search(r"\bref_model\s*=\s*(\w+)", text_at(script, call.place))
            if named is None or named[1] == "None":
                continue
            yield call.place
            yield from (place_of(script, node) for node in _assignments(script, named[1]))


def _second(job: Job, project: Project) -> Iterator[Said]:
    """With adapters the reference is the same model without them; a second one is loaded all the same."""
    named = list(_of_one_name(job, project)) if adapters(job) else []
    yield from named or _loaded_twice(job, project)


def _of_one_name(job: Job, project: Project) -> Iterator[Said]:
    """The reference is loaded by the name of the policy."""
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("DPOTrainer", "KTOTrainer", "BCOTrainer"):
            named = re.search(r"\bref_model\s*=\s*(\w+)", text_at(script, call.place))
            loads = [one for one in script.calls_of("from_pretrained") if named and one.result == named[1]]
            name = (
                loads[0].arguments.get("0") or loads[0].arguments.get("pretrained_model_name_or_path")
                if loads
                else None
            )
            if name is None or not isinstance(name.value, str) or name.value != job.get("model_name_or_path"):
                continue
            model = known(name.value)
            size = model.billions * 2e9 / 2**30 if model is not None and model.billions else None
            yield Finding(
                f"`ref_model` is a second copy of `{name.value}`, and only adapters are trained: the policy without them is"
                " the reference already.",
                place=loads[0].place,
                evidence=Evidence(Level.RESOLVED, {"reference": name.value, "adapters": True}),
                stake=Stake(AtStake.MEMORY, size, size, "parameters x 2 bytes") if size else Stake(AtStake.MEMORY),
                remedy=Remedy(Risk.SAFE, "Leave `ref_model` out: TRL switches the adapters off for it."),
                also=(call.place,),
            )
            return


def _loaded_twice(job: Job, project: Project) -> Iterator[Said]:
    """Both models are made by the same expression, and the policy gets adapters."""
    for script in (one for one in project.scripts if one.file in job.files):
        for call in (node for node in ast.walk(script.tree) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).rpartition(".")[2] != "DPOTrainer":
                continue
            given = {word.arg: word.value for word in call.keywords}
            policy = given.get("model") or (call.args[0] if call.args else None)
            reference = given.get("ref_model") or (call.args[1] if len(call.args) > 1 else None)
            if not isinstance(policy, ast.Name) or not isinstance(reference, ast.Name):
                continue
            made = _given(script, policy.id), _given(script, reference.id)
            wrapped = any("get_peft_model(" in one for one in made[0])
            peft = given.get("peft_config")
            if "get_peft_config" in _peft(script, peft) and not adapters(job):
                continue  # which gives none unless it is asked for
            if (
                not wrapped
                and not adapters(job)
                and (peft is None or isinstance(peft, ast.Constant) or adapters(job) is False)
            ):
                continue
            same = [one for one in made[1] if one in made[0] and "(" in one]
            if len(made[1]) != 1 or not same:
                continue
            yield Finding(
                f"`ref_model` is a second copy of the policy's base (`{same[0][:60]}`), and only adapters are trained: the"
                " policy without them is the reference already.",
                place=place_of(script, call),
                evidence=Evidence(Level.TEXT, {"reference": same[0], "adapters": True}),
                stake=Stake(AtStake.MEMORY),
                remedy=Remedy(Risk.SAFE, "Leave `ref_model` out: TRL switches the adapters off for it."),
                also=tuple(place_of(script, node) for node in _assignments(script, reference.id)),
            )
            return


def _peft(script: Script, given: ast.expr | None) -> str:
    """What the trainer's `peft_config` comes from, as source."""
    if isinstance(given, ast.Name):
        return " ".join(_given(script, given.id))
    return ast.unparse(given) if given is not None else ""


def _assignments(script: Script, name: str) -> list[ast.Assign]:
    return [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name
    ]


def _given(script: Script, name: str) -> list[str]:
    return [ast.unparse(node.value) for node in _assignments(script, name)]


_LOOP = """import torch
import torch.nn.functional as F

for batch in train_loader:
    policy = log_probs(model(**batch["chosen"])) - log_probs(model(**batch["rejected"]))
%s    loss = -F.logsigmoid(0.1 * (policy - reference)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_EACH = """    with torch.no_grad():
        reference = log_probs(ref_model(**batch["chosen"])) - log_probs(ref_model(**batch["rejected"]))
"""


_TWICE = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer


def load(name):
    return AutoModelForCausalLM.from_pretrained(name, torch_dtype="bfloat16")


model = load("Qwen/Qwen2.5-7B-Instruct")
ref_model = load("Qwen/Qwen2.5-7B-Instruct")
%sDPOTrainer(%s, args=DPOConfig(output_dir="out", precompute_ref_log_probs=True), train_dataset=pairs).train()
"""
RULE = Rule(
    code="DPO001",
    name="reference-every-step",
    summary="The reference model is held and run at every step.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The reference does not learn: its log-probabilities of a pair are the same whenever they are computed. TRL"
        " computes them at every step unless told to do it once before, and so do loops of one's own.",
        why="Full training keeps a second model in memory for it; more than one epoch pays for it again and again.",
        detected="E1: the key, whether all weights are trained, and the epochs. Nothing is said of adapters in one epoch,"
        " where each is computed once either way, nor where the reference is updated (`sync_ref_model`). E0: a model that is"
        " named as a reference, or frozen, is called without gradients at every step of a loop, or of a Trainer's loss,"
        " over chosen and rejected answers, or the policy without its adapters. Loops"
        " that generate, whose answers are new, are not reported.",
        proven="`dynotune profile -- python dpo.py`: forward passes without gradients.",
        deliberate=(
            "Dropout or augmentation that the reference is to see too.",
            "Data that is streamed, or seen once: only memory is saved.",
            "The reference follows the policy (TR-DPO).",
        ),
        sources=(
            "H200, 7B LoRA: 320 against 228 ms a step with 2 pairs; set-up 46 s for 56 pairs (the project's baseline)",
            "TRL's documentation of `precompute_ref_log_probs`",
        ),
    ),
    bad=Example({"dpo.yaml": f"{_DPO}num_train_epochs: 3\nprecompute_ref_log_probs: false\n"}, says="never change"),
    good=Example(
        {
            "dpo.yaml": f"{_DPO}num_train_epochs: 3\nprecompute_ref_log_probs: true\n",
            "dpo.py": _LOOP % '    reference = batch["reference"]\n',
        }
    ),
    also_bad=(
        Example({"dpo.py": _LOOP % _EACH}, says="never changes"),
        Example(
            {"dpo.py": _TWICE % ("", "model, ref_model, peft_config=LoraConfig(r=16)")},
            says="a second copy of the policy's base",
        ),
        Example(
            {
                "dpo.py": _TWICE
                % ("model = get_peft_model(model, LoraConfig(r=16))\n", "model=model, ref_model=ref_model")
            },
            says="a second copy of the policy's base",
        ),
    ),
    formerly=("DPO050",),
    former_names=("reference-in-the-loop",),
)
