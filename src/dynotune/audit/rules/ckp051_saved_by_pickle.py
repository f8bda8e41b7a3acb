"""CKP051: the trained model is saved as a pickle: its object, its weights alone, or by a trainer that was told to."""

import re
from collections.abc import Iterator

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.own_models import is_of_ones_own
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_NAMED = (
    r"(?:self\.)?\w*(?:model|policy|net|llm|engine|student|actor|unwrapped|merged|base|lm)\d?(?:\.module|\._orig_mod)*"
)
_MODEL = rf"(?:\w+\.unwrap_model\(\s*[\w.]+\s*\)|{_NAMED})"
_KEPT = re.compile(
    r"(model|policy|net|llm|unwrapped|merged|\)|module|lm)\.save_pretrained|\.save_model\(|safetensors[\w.]* import .*save"
    r"|save_file\("
)


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _by_a_trainer(job)
    for script in project.scripts:
        yield from _by_a_call(script, project)
    yield from _by_an_export(project)


def _by_an_export(project: Project) -> Iterator[Said]:
    """LLaMA-Factory's `export_legacy_format`, of a file or a command."""
    name = "export_legacy_format"
    for config in project.configs:
        if config.values.get(name) is True and "export_dir" in config.values:
            place = config.places.get(name, Place(config.file))
            yield _by_pickle(f"`{name}: true`", place, f"Set `{name}: false`.", (Change(Edit.SET, place, name, False),))
    for launch in project.launches:
        flag = launch.flags.get(name)
        if flag is not None and flag.value is True and launch.program.startswith("llamafactory-cli"):
            yield _by_pickle(f"`--{name} true`", flag.place, "Leave it out.")


def _by_a_trainer(job: Job) -> Iterator[Said]:
    name = "save_safetensors"
    if job.get(name) is False and job.is_given(name) and job.trainer is not Trainer.DYNOTUNE:
        told = f"`{job.called(name)}: false`"
        yield _by_pickle(told, job.place(name), f"Set `{job.called(name)}: true`.", (job.set(name, True),))


def _by_a_call(script: Script, project: Project) -> Iterator[Said]:
    for call in script.calls_of("save_pretrained", "save_model"):
        given = call.arguments.get("safe_serialization")
        if given is not None and given.value is False:
            place = given.place if given.place.line else call.place
            yield _by_pickle("`safe_serialization=False`", place, "Take it out: safetensors is the default.")
    saves = [(call, what) for call in script.calls if (what := _saved(script, call)) is not None]
    if not saves:
        return
    near = connected(script, project)
    hugging_face = any(call.name.startswith(("transformers.", "peft.")) for one in near for call in one.calls)
    kept = any(_KEPT.search(code(one)) for one in near)
    tensors = any(name.startswith("safetensors") for one in near for name in one.imports.values())
    for call, (model, weights) in saves:
        if weights and (kept or not (hugging_face or tensors)):
            continue
        if weights:
            message = f"`{model}.state_dict()` is saved as a pickle, which says nothing of the model and may hold code."
            text = "Use `safetensors.torch.save_model`, as for what the file reads."
            if hugging_face:
                message = (
                    f"`{model}.state_dict()` is saved as a pickle: no safetensors, which hubs and servers load by"
                    " default, and under ZeRO-3 or FSDP not the weights but what is left of them on one rank."
                )
                text = (
                    f'Use `safetensors.torch.save_model({model}, "model.safetensors")`: a class of one\'s own has no'
                    " `save_pretrained`."
                    if is_of_ones_own(model, script, near)
                    else f"Use `{model}.save_pretrained(folder)` or `trainer.save_model(folder)`, which write safetensors."
                )
        else:
            message = (
                f"`{call.name}({model}, ...)` pickles the whole object with the paths of its classes: it loads only"
                " where the code is the same, and may run code."
            )
            text = "Save the weights: `save_pretrained`, or `safetensors.torch.save_model`."
        yield Finding(
            message,
            place=call.place,
            evidence=Evidence(Level.TEXT, {"saved": model + (".state_dict()" if weights else "")}),
            stake=Stake(AtStake.CLARITY if weights else AtStake.LOST),
            remedy=Remedy(
                Risk.OPERATIONAL, text, effort=Effort.MINUTES, breaks="What loads the file has to change as well."
            ),
        )


def _saved(script: Script, call: Call) -> tuple[str, bool] | None:
    """The model that a call pickles, and whether only its weights; also by a name that was given them before."""
    by_accelerate = call.name == "accelerate.Accelerator.save" and "safe_serialization" not in call.arguments
    if not by_accelerate and call.name not in (
        "torch.save",
        "pickle.dump",
        "joblib.dump",
        "cloudpickle.dump",
        "dill.dump",
    ):
        return None
    first = re.match(r"[\w.]*(?:save|dump)\(\s*((?:[^(),{}]|\([^()]{0,80}\)){1,120})", text_at(script, call.place))
    if first is None:
        return None
    what = first[1].strip()
    if what.isidentifier() and not re.fullmatch(_MODEL, what):
        given = re.findall(rf"(?m)^\s*{what}\s*=\s*(\S[^\n]{{0,200}})", code(script))
        what = given[0].strip() if len(given) == 1 else ""
    held = re.match(r"(\w+)\.state_dict\(\)$", what)
    if held and not re.fullmatch(_MODEL, held[1]) and _is_a_model(held[1], script, call):
        return held[1], True
    weights = re.fullmatch(rf"({_MODEL})\.state_dict\(\)", what) or re.fullmatch(
        rf"\{{.{{0,60}}\bfor\b.{{0,30}}\bin\s+({_MODEL})\.state_dict\(\)\.items\(\).{{0,60}}\}}", what
    )
    unwrapped = re.fullmatch(
        r"[\w.]*(?:unwrap_model\(\s*(\w+)\s*\)\.state_dict\(\)|get_state_dict\(\s*(\w+)\s*\))", what
    )
    if weights or unwrapped:
        return (weights[1], True) if weights else (unwrapped[1] or unwrapped[2], True) if unwrapped else None
    whole = re.fullmatch(rf"({_MODEL})(?:\.cpu\(\)|\.eval\(\)|\.to\([^()]*\))?", what)
    return (whole[1], False) if whole else None


_WEIGHTS_FILE = re.compile(r"(pytorch_model|adapter_model|model)[\w.-]*\.(bin|pth?)\b")


def _is_a_model(name: str, script: Script, call: Call) -> bool:
    """By what it is given (`m = accelerator.unwrap_model(model)`), or by the name of the file that it goes to."""
    if _WEIGHTS_FILE.search(text_at(script, call.place)):
        return True
    given = re.findall(rf"(?m)^\s*{name}\s*=\s*(\S[^\n]{{0,200}})", code(script))
    return any(
        re.match(rf"{_MODEL}$|[\w.]*unwrap_model\(|\w+\.from_pretrained\(|get_peft_model\(", one.strip())
        for one in given
    )


def _by_pickle(told: str, place: Place, text: str, changes: tuple[Change, ...] = ()) -> Finding:
    return Finding(
        f"{told} writes weights by pickle: who loads them runs whatever stands in the file, and many tools refuse to.",
        place=place,
        evidence=Evidence(Level.TEXT, {"safetensors": False}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.SAFE, text, changes, breaks="What loads the `.bin` file by its name has to change as well."),
    )


_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: data.jsonl\n    type: chat_template\nsequence_len: 4096\n"
    "micro_batch_size: 4\n"
)
_SAVE = """import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", device_map="cuda")
%s
"""
RULE = Rule(
    code="CKP051",
    name="saved-by-pickle",
    summary="A model is saved by pickling, not as safetensors.",
    group=Group.OPERATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`torch.save(model)` pickles an object: names of classes, not their code."
        " `torch.save(model.state_dict())` pickles"
        " tensors without saying what they belong to.",
        why="After an update of a package the first may not load any more. Neither is what other programs read, and"
        " both are"
        " formats that can carry code.",
        detected="E1: `save_safetensors: false`, or LLaMA-Factory's `export_legacy_format: true`, given."
        " E0: `safe_serialization=False`; `torch.save` of a model;"
        " of its weights alone only for models of transformers or PEFT in a"
        " program that saves"
        " them in no other way. Checkpoints that hold an optimizer as well are not reported.",
        proven="Load it with `AutoModelForCausalLM.from_pretrained(folder)`.",
        deliberate=("The model is no model of transformers, and the same code loads it again.",),
        sources=("PyTorch's tutorial on saving and loading models", "The documentation of safetensors"),
    ),
    bad=Example({"train.py": _SAVE % 'torch.save(model, "model.pt")'}, says="pickles the whole object"),
    good=Example({"train.py": _SAVE % 'model.save_pretrained("model")'}),
    also_bad=(
        Example(
            {"train.py": _SAVE % "m = accelerator.unwrap_model(model)\ntorch.save(m.state_dict(), path)"},
            says="`m.state_dict()` is saved as a pickle",
        ),
        Example(
            {"train.py": _SAVE % 'torch.save(core.state_dict(), f"{folder}/pytorch_model.bin")'},
            says="`core.state_dict()` is saved as a pickle",
        ),
        Example({"run.yml": f"{_AXOLOTL}save_safetensors: false\n"}, says="by pickle"),
    ),
    formerly=("CKP006",),
    former_names=(
        "pickled-weights",
        "whole-module-pickled",
    ),
)
