"""Documents say that a run computes in 16 bits, and its program computes in float32: autocast is off, or there is none."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.steps import loops, on_device, takes_steps, text_at
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.facts.told_precision import told_precision
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_CASTS = re.compile(
    r"autocast|Trainer\(|\.half\(|\.bfloat16\(|\.to\([^)\n]*(?:float16|dtype)|dtype\s*=\s*(?!torch\.(?:float32|long|int|bool)|np)"
    r"|set_default_dtype|[aA]ccelerat|deepspeed|Fabric|getattr\(\s*torch|GradScaler|\bapex\b|from_dtype"
)
"""What may compute in 16 bits."""

_NAMED = re.compile(r"b(?:float|f)16|fp16|float16|\bamp\b|mixed[-_]precision", re.IGNORECASE)
_LIGHTNING = re.compile(r"^(?:lightning|pytorch_lightning)\b.*\bTrainer$")
_FULL = (32, "32", "32-true", "full")


def only_told_to_be_16_bits(project: Project) -> Iterator[Said]:
    """Of the one program of the project that trains by a loop of its own or by Lightning."""
    programs = [one for one in project.scripts if takes_steps(one) or _of_lightning(one) is not None]
    if len(programs) != 1:
        return
    (script,) = programs
    told = told_precision(project, [script.file])
    near = connected(script, project)
    if told is None or leads_out(near, project):
        return
    trainer = _of_lightning(script)
    if trainer is not None:
        yield from _lightning(trainer, told, project)
    elif any(on_device(one) for one in near):
        yield from _loop(script, near, told, project)


def _of_lightning(script: Script) -> Call | None:
    made = [call for call in script.calls if _LIGHTNING.search(call.name)]
    return made[0] if len(made) == 1 else None


def _lightning(trainer: Call, told: Place, project: Project) -> Iterator[Said]:
    asked = trainer.arguments.get("precision")
    if any(name.startswith("*") for name in trainer.arguments) or "plugins" in trainer.arguments:
        return
    if asked is not None and (not asked.is_known or asked.value not in _FULL or asked.others or _given(asked, project)):
        return
    which = "`precision` is not given" if asked is None else f"`precision={asked.value!r}`"
    yield _finding(
        f"`{told.file}` says that the run computes in 16 bits, and {which}: Lightning computes in float32.",
        asked.place if asked is not None else trainer.place,
        told,
        'Set `precision="bf16-mixed"`.',
    )


def _loop(script: Script, near: Sequence[Script], told: Place, project: Project) -> Iterator[Said]:
    off = [
        (one, call, flag) for one in near for call in one.calls_of("autocast") for flag in [_off(one, call, project)]
    ]
    if any(flag is None for _, _, flag in off):
        return
    texts = []
    for one in near:
        text = code(one)
        for other, call, _ in off:
            text = text.replace(text_at(other, call.place), "") if other is one else text
        texts.append(text)
    if any(_CASTS.search(text) for text in texts):
        return
    if off:
        _, call, flag = off[0]
        assert flag is not None
        yield _finding(
            f"`{told.file}` says that the run computes in 16 bits, and autocast is off: `{flag.name}` is"
            f" `{flag.value}` by default, and no command gives it.",
            call.place,
            told,
            f"Give `{flag.name}`, or make it the default."
            if isinstance(flag.value, bool)
            else f"Give `{flag.name}` the value that switches autocast on, or make that the default.",
            (flag.place,),
        )
    elif not any(_NAMED.search(text) for text in texts) and not any(_loads(one, project) for one in near):
        first = next(loops(script))
        yield _finding(
            f"`{told.file}` says that the run computes in 16 bits, and nothing in the loop's files asks for it: no"
            " `autocast`, and no type for the weights.",
            Place(script.file, first.place.line),
            told,
            'Run the forward pass and the loss under `torch.autocast("cuda", torch.bfloat16)`.',
        )


_IN_FLOAT32 = re.compile(r"(?:^|/)(?:distil)?(?:gpt2|bert|roberta)|t5-(?:small|base|large|xl)", re.IGNORECASE)
"""Checkpoints that are float32 themselves."""


def _loads(script: Script, project: Project) -> bool:
    """A checkpoint whose own type a newer transformers takes, and that may be of 16 bits."""
    pinned = project.pinned("transformers")
    if pinned is not None and pinned < (5,):
        return False
    loaded = [
        one.arguments.get("pretrained_model_name_or_path") or one.arguments.get("0")
        for one in script.calls_of("from_pretrained")
        if one.name.startswith("transformers.") and re.search(r"Model|LM\b", one.name)
    ]
    return any(name is None or not _IN_FLOAT32.search(str(name.value)) for name in loaded)


def _off(script: Script, call: Call, project: Project) -> Setting | None:
    """The flag by which autocast is off, as every command of the project leaves it; None: it may be on."""
    enabled = call.arguments.get("enabled")
    if enabled is not None:
        off = enabled.is_known and enabled.value is False and not enabled.others and not _given(enabled, project)
        flag = next((one for one in enabled.via if one.key.startswith("-")), None)
        default = (
            script.constants.get(flag.key) if flag is not None else None
        )  # `args.precision == "bf16"` is worked out
        value = default.value if default is not None and default.is_known else False
        return Setting(flag.key if flag else "enabled", value, flag or enabled.place) if off else None
    name = _chosen_by(script, call)
    flag_ = script.constants.get(f"--{name}") or script.constants.get(f"--{name.replace('_', '-')}") if name else None
    if flag_ is None or flag_.value is not False or _mentioned(flag_.place.key or name, project):
        return None
    return Setting(f"--{name}", False, flag_.place)


def _chosen_by(script: Script, call: Call) -> str:
    """`amp` of `autocast(...) if args.amp else nullcontext()`."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.IfExp) and node.body.lineno == call.place.line and "autocast" in ast.unparse(node.body):
            test = node.test
            return test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return ""


def _given(setting: Setting, project: Project) -> bool:
    """A command, or a document's words, give a flag that it comes from."""
    return any(place.key.startswith("-") and _mentioned(place.key, project) for place in setting.via)


def _mentioned(flag: str, project: Project) -> bool:
    words = re.compile(rf"(?<![\w-])--?{re.escape(flag.lstrip('-')).replace('_', '[-_]')}\b")
    files = [*project.documents.values(), *(text for file, text in project.texts.items() if not file.endswith(".py"))]
    return any(words.search(text) for text in files)


def _finding(message: str, place: Place, told: Place, remedy: str, also: tuple[Place, ...] = ()) -> Finding:
    return Finding(
        message,
        place=place,
        evidence=Evidence(Level.RESOLVED, {"told at line": told.line}),
        stake=Stake(AtStake.TIME, 0.3, 0.8, "float32 products run past the matrix units, or as TF32 at half the rate"),
        remedy=Remedy(
            Risk.NUMERIC,
            remedy,
            effort=Effort.LINE,
            accuracy="Products round to bfloat16; the weights stay float32.",
            measure="dynotune profile -- python train.py",
        ),
        also=(told, *also),
    )
