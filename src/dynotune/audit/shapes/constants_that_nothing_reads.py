"""Constants of a notebook or a script that trains, named as settings of training, and read by no line."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_SETTINGS = re.compile(
    r"(?:LEARNING_RATE|LR|(?:NUM_|N_|TRAIN_)?EPOCHS|(?:TRAIN_|MICRO_|PER_DEVICE_)?BATCH_SIZE|MAX_(?:SEQ_)?LEN(?:GTH)?|SEQ_LEN"
    r"|WARMUP(?:_STEPS|_RATIO)?|WEIGHT_DECAY|GRAD(?:IENT)?_ACC\w*|ACCUM\w*|LORA_(?:R|RANK|ALPHA|DROPOUT)|DROPOUT|MAX_GRAD_NORM"
    r"|GRAD_CLIP|LABEL_SMOOTHING)"
)
_TRAINS = re.compile(r"Trainer\(|\.backward\(|\.fit\(")
_AS_A_WHOLE = re.compile(r"\b(?:globals|locals|vars|exec|eval|getattr|import_module)\(|\bimport \*")
_LEFT = re.compile(r"unused|not used|deprecat|todo|legacy|for reference", re.IGNORECASE)


def constants_that_nothing_reads(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        if not _TRAINS.search(code(script)) or any(_AS_A_WHOLE.search(one.source) for one in project.scripts):
            continue
        unread = [(name, place) for name, place in _set(script) if not _is_read(name, script, project)]
        if 0 < len(unread) <= 3:
            shown = ", ".join(f"`{name}`" for name, _ in unread)
            yield Finding(
                f"{shown} {'are' if len(unread) > 1 else 'is'} set and read by no line of the project: whoever changes"
                f" {'them' if len(unread) > 1 else 'it'} changes nothing.",
                place=unread[0][1],
                evidence=Evidence(Level.TEXT, {"unread": [name for name, _ in unread]}),
                stake=Stake(AtStake.CLARITY),
                remedy=Remedy(Risk.BEHAVIOURAL, "Hand it to what it was meant for, or take it out."),
                also=tuple(place for _, place in unread[1:]),
            )


def _set(script: Script) -> Iterator[tuple[str, Place]]:
    """Plain numbers at the top of the file."""
    lines = script.source.split("\n")
    for node in script.tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        name, number = node.targets[0].id, node.value
        plain = isinstance(number, ast.Constant) and type(number.value) in (int, float)
        if (
            plain
            and _SETTINGS.fullmatch(name)
            and not _LEFT.search("\n".join(lines[max(0, node.lineno - 2) : node.lineno]))
        ):
            yield name, place_of(script, node)


def _is_read(name: str, script: Script, project: Project) -> bool:
    """By the file itself, in any way but setting it; or by another that may import it, or by a shell's line."""
    word = re.compile(rf"\b{name}\b")
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and word.search(node.value):
            return True
    return (
        any(word.search(text) for file, text in project.texts.items() if file != script.file)
        or "{" + name in script.source
    )
