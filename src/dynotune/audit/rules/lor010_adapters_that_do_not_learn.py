"""LOR010: adapters are there, and no update reaches them; or a quantised model is trained without any."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.adapted import trains_adapters
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "ORPOTrainer", "KTOTrainer", "RewardTrainer")
_THAWS = re.compile(
    r"requires_grad(?:_\(\s*\)|_\(\s*True|\s*=\s*True|\s*=\s*[\"'\w\s]*\bin\b)|set_adapter|mark_only_\w+_as_trainable|is_trainable"
    r"|merge_and_unload|unload\(\)|unfreeze|train_adapter"
)
"""What makes adapters trainable again, or makes others of them."""


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        if "peft" in script.source.lower() or "LoraConfig" in script.source:
            yield from _loaded_to_be_used(script)
            yield from _for_inference(script, project)
            yield from _frozen_afterwards(script)
            yield from _made_after_the_optimizer(script)
            yield from _twice(script)
    for job in project.jobs:
        yield from _of_quantised_weights(job, project)


def _is_trained(script: Script, name: str) -> bool:
    """A trainer gets it, or a loop of the file runs it and propagates back."""
    for call in script.calls:
        if call.name.rpartition(".")[2] in _TRAINERS and re.search(
            rf"[(=,]\s*{name}\s*[,)]", text_at(script, call.place)
        ):
            return True
    return any(re.search(rf"\b{name}\(", loop.text) for loop in loops(script))


def _loaded_to_be_used(script: Script) -> Iterator[Said]:
    """`PeftModel.from_pretrained(base, folder)`, which freezes the adapter unless `is_trainable=True`."""
    for call in script.calls:
        if not re.search(r"\bPeftModel(?:ForCausalLM)?\.from_pretrained$", call.name) or not call.result.isidentifier():
            continue
        if {"is_trainable", "**"} & set(call.arguments) or _THAWS.search(code(script)):
            continue
        others = [one for one in script.calls_of("get_peft_model") if one.result == call.result]
        if others or "peft_config=" in script.source or not _is_trained(script, call.result):
            continue
        yield _finding(
            f"`PeftModel.from_pretrained(...)` without `is_trainable=True` loads the adapter frozen, and `{call.result}` is"
            " trained: no weight of it needs a gradient, so the first backward pass stops, or nothing is learned.",
            call.place,
            "Give `is_trainable=True`.",
        )
        return


def _for_inference(script: Script, project: Project) -> Iterator[Said]:
    """`LoraConfig(inference_mode=True)` in a program that trains."""
    for call in script.calls_of("LoraConfig"):
        mode = call.arguments.get("inference_mode")
        if mode is None or mode.value is not True or mode.others or mode.via or _THAWS.search(code(script)):
            continue
        if any(re.search(r"\.train\(\s*(?:resume|\))|\.backward\(", code(one)) for one in connected(script, project)):
            yield _finding(
                "`inference_mode=True` freezes the adapter, and the program trains it: no weight needs a gradient.",
                mode.place if mode.place.file == script.file else call.place,
                "Take `inference_mode` out, or set it to false.",
            )


def _frozen_afterwards(script: Script) -> Iterator[Said]:
    """`for p in model.parameters(): p.requires_grad = False` behind `model = get_peft_model(...)`."""
    made = [call for call in script.calls_of("get_peft_model") if call.result.isidentifier()]
    if len(made) != 1 or not _is_trained(script, made[0].result):
        return
    name = made[0].result
    lines = code(script).split("\n")
    behind = "\n".join(lines[made[0].place.end_line :])
    every = rf"for (\w+) in {name}\.parameters\(\):\s*\n?\s*\1\.requires_grad(?:_\(\s*False\s*\)|\s*=\s*False)"
    found = re.search(rf"{every}|^\s*{name}\.requires_grad_\(\s*False\s*\)", behind, re.MULTILINE)
    if found is None or _THAWS.search(behind) or "get_peft_model" in behind:
        return
    line = made[0].place.end_line + behind.count("\n", 0, found.end()) + 1
    yield _finding(
        f"All of `{name}` is frozen behind `get_peft_model`, which had frozen the base by itself: the adapters are frozen"
        " too, and no weight needs a gradient.",
        Place(script.file, line),
        "Take the freezing out: `get_peft_model` leaves the adapters alone trainable.",
        (made[0].place,),
    )


def _made_after_the_optimizer(script: Script) -> Iterator[Said]:
    """`optimizer = AdamW(model.parameters())` above `model = get_peft_model(model, ...)` in one function."""
    for room in ast.walk(script.tree):
        if not isinstance(room, ast.Module | ast.FunctionDef):
            continue
        adapted = [
            node
            for node in room.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func).rpartition(".")[2] == "get_peft_model"
        ]
        if len(adapted) != 1 or not isinstance(adapted[0].targets[0], ast.Name):
            continue
        name = adapted[0].targets[0].id
        for node in room.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            made = ast.unparse(node.value)
            kind = ast.unparse(node.value.func).rpartition(".")[2]
            over = re.search(rf"\b{name}\.(?:named_)?parameters\(\)", made)
            if not re.fullmatch(r"\w*(?:Adam\w*|SGD|Adafactor|Lion\w*)", kind) or not over:
                continue
            target = ast.unparse(node.targets[0])
            again = [one for one in room.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == target]
            if node.lineno < adapted[0].lineno and len(again) == 1:
                yield _finding(
                    f"`{target}` is made before `get_peft_model`: it holds the base's weights, which are frozen then, and"
                    " none of the adapters': no step changes anything.",
                    Place(script.file, node.lineno),
                    "Make the optimizer behind `get_peft_model`.",
                    (Place(script.file, adapted[0].lineno),),
                )
                return


def _twice(script: Script) -> Iterator[Said]:
    """A trainer of TRL's gets a model with adapters and a `peft_config` as well."""
    adapted = {call.result: call for call in script.calls_of("get_peft_model") if call.result.isidentifier()}
    for call in script.calls_of(*_TRAINERS[2:]):
        given = call.arguments.get("peft_config")
        if given is None or given.value is None or not call.name.startswith("trl."):
            continue
        text = text_at(script, call.place)
        name = next((one for one in adapted if re.search(rf"(?:\(\s*|model\s*=\s*){one}\s*[,)]", text)), "")
        if name and "merge_and_unload" not in script.source and not _chosen(script, adapted[name]):
            yield _finding(
                f"`{name}` has its adapters by `get_peft_model` already, and `{call.name.rpartition('.')[2]}` gets"
                " `peft_config` too: TRL refuses both, and earlier releases pass over one of them.",
                given.place if given.place.file == script.file else call.place,
                "Give `peft_config` alone, with the base model, or the model with adapters alone.",
                (adapted[name].place,),
            )
            return


def _chosen(script: Script, call: Call) -> bool:
    """It is made under a condition, so that the other may be given where it is not."""
    return any(one.kind == "if" for one in call.around)


_QUANTISED_TRAINERS = (Trainer.TRL, Trainer.TRANSFORMERS)


def _of_quantised_weights(job: Job, project: Project) -> Iterator[Said]:
    """A script loads its model in 4 or 8 bits, and no file of the program has an adapter."""
    setting = next((job.setting(name) for name in ("load_in_4bit", "load_in_8bit") if job.get(name) is True), None)
    if setting is None or setting.others or job.trainer not in _QUANTISED_TRAINERS or job.get("use_peft"):
        return
    if not job.home.file.endswith((".py", ".ipynb")) or trains_adapters(job, project) is not False:
        return
    if any(one.key.startswith("-") for one in setting.via):
        return
    bits = "4" if setting.name == "load_in_4bit" else "8"
    yield _finding(
        f"The model is loaded in {bits} bits, and no adapter is made: quantised weights cannot be trained, and the trainer"
        " refuses them.",
        setting.place,
        "Make adapters (`peft_config=LoraConfig(...)`), or load the weights as they are.",
    )


def _finding(message: str, place: Place, remedy: str, also: tuple[Place, ...] = ()) -> Finding:
    return Finding(
        message,
        place=place,
        evidence=Evidence(Level.TEXT),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            remedy,
            effort=Effort.LINE,
            accuracy="The adapters are trained.",
            measure="The number of trained parameters at the beginning of the log, and of gradients that are not None.",
        ),
        also=also,
    )


_SCRIPT = """from peft import PeftModel
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
model = PeftModel.from_pretrained(base, "out/adapter"{})
Trainer(model=model, args=TrainingArguments("out/more"), train_dataset=rows).train()
"""
RULE = Rule(
    code="LOR010",
    name="adapters-that-do-not-learn",
    summary="Adapters are frozen, made twice or unknown to the optimizer, or a quantised model has none.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`get_peft_model` freezes the base and leaves the adapters trainable. An adapter that is loaded is frozen,"
        " unless it is asked for otherwise.",
        why="What needs no gradient gets none: the backward pass stops at a loss without a graph, or an optimizer steps over"
        " nothing.",
        detected="E0: `PeftModel.from_pretrained` without `is_trainable`, whose result is trained and thawed by nothing;"
        " `LoraConfig(inference_mode=True)` in a program that trains; all of a model frozen behind `get_peft_model`; an"
        " optimizer that is made above it; a model with adapters and a `peft_config` for one trainer of TRL's. E1: weights"
        " in 4 or 8 bits for a trainer, and no word of adapters in the files that work together.",
        proven="Count the parameters whose `requires_grad` is true.",
        deliberate=("Adapters of another library are put in by a name that says nothing of it.",),
        sources=(
            "PEFT 0.21, `PeftModel.from_pretrained` and `LoraConfig`; TRL 1.16, `SFTTrainer`; transformers 5.23,"
            " `validate_quantization_for_training`",
        ),
    ),
    bad=Example({"train.py": _SCRIPT.format("")}, says="is_trainable"),
    good=Example({"train.py": _SCRIPT.format(", is_trainable=True")}),
)
