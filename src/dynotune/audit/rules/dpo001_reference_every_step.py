"""DPO001: the reference model is held, or run, although its log-probabilities never change."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.asked import adapters, number, on_gpu
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

SHARE = 0.29
"""Of a step that the reference took: 320 against 228 ms, 2 pairs, 7B LoRA."""

_DPO = "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: pairs.jsonl\nbeta: 0.1\nuse_peft: true\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_a_trainer(job, project)
    for script in project.scripts:
        yield from _in_a_loop(script, project)


def _of_a_trainer(job: Job, project: Project) -> Iterator[Said]:
    if job.method is not Method.DPO or job.trainer not in (Trainer.TRL, Trainer.AXOLOTL) or not on_gpu(job):
        return
    yield from _second(job, project)
    setting = job.setting("precompute_ref_log_probs")
    off = setting is not None and (setting.value is False or (job.trainer is Trainer.AXOLOTL and setting.value is None))
    if not off or job.get("sync_ref_model") is True:
        return
    lora, epochs, model = adapters(job), number(job, "num_train_epochs"), known(job.get("model_name_or_path"))
    key = job.called("precompute_ref_log_probs")
    facts = {"adapters": lora, "epochs": epochs, key: False}
    if lora is False and model is not None and model.billions:
        half = job.get("dtype") in ("bfloat16", "float16") or (job.trainer is Trainer.AXOLOTL and job.get("bf16"))
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
    )


def _second(job: Job, project: Project) -> Iterator[Said]:
    """With adapters the reference is the same model without them; a second one is loaded all the same."""
    if not adapters(job):
        return
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("DPOTrainer"):
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


_REFERENCE = re.compile(r"(self\.)?(ref|reference)(erence)?_?(model|policy)?$|\w*_ref(_model)?$|frozen_(model|policy)$")
_PAIRS = re.compile(r"\bchosen\b|\brejected\b|chosen_|logsigmoid", re.IGNORECASE)
_GENERATES = re.compile(r"\.generate\(|rollout|GRPO|PPO|kl_|teacher", re.IGNORECASE)


def _in_a_loop(script: Script, project: Project) -> Iterator[Said]:
    if not _PAIRS.search(script.source) or _GENERATES.search(script.source):
        return
    frozen = _frozen(connected(script, project))
    for passes in _every_step(script, project, frozen):
        if not passes:
            continue
        first, *more = passes
        yield Finding(
            f"`{first.name.removeprefix('.') or first.on}(...)` scores every pair again with a model that never"
            f" changes: a forward"
            " pass of four at every step, and its weights in memory throughout.",
            place=first.place,
            evidence=Evidence(Level.TEXT, {"passes": len(passes)}),
            stake=Stake(
                AtStake.TIME, 0.15, 0.25, "arithmetic: one forward of the policy's forward and backward and this one"
            ),
            remedy=Remedy(
                Risk.SAFE,
                "Score all pairs once before training and keep the sums by row; from the second epoch or run on"
                " they are free.",
                effort=Effort.HOURS,
                breaks="A row must be told by its content: what is kept is wrong after a change of template or"
                " truncation.",
                measure="dynotune profile -- python train.py",
            ),
            also=tuple(call.place for call in more),
        )


def _every_step(script: Script, project: Project, frozen: frozenset[str]) -> Iterator[list[Call]]:
    """Forward passes of a model that stays as it is: of each loop, or where a loop elsewhere has its loss of pairs made."""
    looping = False
    for loop in loops(script):
        looping = True
        yield [call for call in loop.calls if call.each_step and _is_forward(script, call, frozen)]
    if looping or "logsigmoid" not in script.source:
        return
    if not any(True for one in connected(script, project) for _ in loops(one)):
        return
    passes = [call for call in script.calls if _is_forward(script, call, frozen)]
    for function in {_function(call) for call in passes}:
        if any(_function(one) == function and one.name.endswith("logsigmoid") for one in script.calls):
            yield [call for call in passes if _function(call) == function]
            return


def _function(call: Call) -> str:
    return ".".join(around.name for around in call.around if around.kind in ("function", "class"))


def _frozen(scripts: Sequence[Script]) -> frozenset[str]:
    """Models that are loaded or copied, and set to get no gradient."""
    found = set()
    for one in scripts:
        made = {
            call.result for call in one.calls_of("from_pretrained", "deepcopy", "create_reference_model") if call.result
        }
        for name in made:
            word = rf"\b{re.escape(name)}"
            stays = rf"{word}\b(?:\.\w+\([^()\n]{{0,60}}\))*\.requires_grad_\(\s*False|{word}\.eval\(\)"
            if re.search(stays, one.source) and not re.search(rf"{word}\.train\(\)", one.source):
                found.add(name)
    return frozenset(found)


def _is_forward(script: Script, call: Call, frozen: frozenset[str]) -> bool:
    """It is called without gradients, or given as the first argument to what scores rows with it."""
    if call.on not in ("", "self") or not _without_gradients(script, call):
        return False
    text = text_at(script, call.place)
    called = re.match(r"[\w.]+", text)
    first = re.match(r"[\w.]+\(\s*([\w.]+)\s*[,)]", text)
    names = [found for found in (called and called[0], first and first[1]) if found]
    return any(_REFERENCE.fullmatch(name) or name in frozen for name in names)


def _without_gradients(script: Script, call: Call) -> bool:
    held = [around.name for around in call.around if around.kind == "with"]
    if any(re.search(r"no_grad|inference_mode|disable_adapter", name) for name in held):
        return True
    function = next((around.name for around in reversed(call.around) if around.kind == "function"), "")
    head = rf"@torch\.(no_grad|inference_mode)\(\)\s{{1,40}}def {re.escape(function)}\("
    return bool(function) and re.search(head, script.source) is not None


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
        " named as a reference, or frozen, is called without gradients at every step of a loop over chosen and rejected"
        " answers. Loops that generate, whose answers are new, are not reported.",
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
    also_bad=(Example({"dpo.py": _LOOP % _EACH}, says="never changes"),),
    formerly=("DPO050",),
)
