"""Adam that a project writes out, weight by weight, and settings that tell PyTorch's or DeepSpeed's to be unfused."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import on_device, place_of, text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_FULL_TRAINING = "full training of a 0.5B to 7B model"


def written_out_adam(script: Script, project: Project) -> Iterator[Said]:
    """`for p in group["params"]:` with both moments of Adam in its body, in the `step` of a class that the program uses."""
    for node in script.tree.body:
        if not isinstance(node, ast.ClassDef) or not any("Optimizer" in ast.unparse(one) for one in node.bases):
            continue
        near = connected(script, project)
        used = [one for one in near if re.search(rf"(?<!class )\b{node.name}\(", code(one))]
        if not used or not any(map(on_device, near)) or any("torch.compile" in ast.unparse(one) for one in [node]):
            continue
        step = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "step"), None)
        loop = _over_weights(step) if step is not None else None
        if loop is None:
            continue
        made = next((call for one in used for call in one.calls if call.name.rpartition(".")[2] == node.name), None)
        yield Finding(
            f"`{node.name}.step` goes over the weights one by one in Python, with several kernels for each: PyTorch's AdamW"
            " updates all of them in one.",
            place=place_of(script, loop),
            evidence=Evidence(Level.TEXT, {"optimizer": node.name, "loop": ast.unparse(loop.iter)[:60]}),
            stake=Stake(AtStake.TIME, 0.0, 0.1, _FULL_TRAINING),
            remedy=Remedy(
                Risk.NUMERIC,
                "Use `torch.optim.AdamW(..., fused=True)`; where its formula is another one, `torch._foreach_` operations or"
                " `torch.compile` of the step.",
                effort=Effort.MINUTES,
                accuracy="Sums round otherwise; compare how each decays the weights.",
                measure="dynotune profile -- python train.py",
            ),
            also=(made.place,) if made is not None else (),
        )


def _over_weights(step: ast.FunctionDef) -> ast.For | None:
    text = ast.unparse(step)
    if "_foreach_" in text or not re.search(r"sqrt", text):
        return None
    for node in ast.walk(step):
        if isinstance(node, ast.For) and re.search(r"\bparams\b", ast.unparse(node.iter)):
            body = "\n".join(ast.unparse(one) for one in node.body)
            second = re.search(r"addcmul_?\(|\*\*\s*2|\.pow\(2\)|\.square\(|grad \* ", body)
            first = re.search(r"\.lerp_\(|\.mul_\([^()]*\)\.add_\(|beta_?1\b|\bb1\b", body)
            if first and second and re.search(r"sqrt|addcdiv", body):
                return node
    return None


def unfused_by_settings(project: Project) -> Iterator[Said]:
    """`fused: false` of a section that AdamW is made of, and DeepSpeed's `torch_adam: true`."""
    sections = {name: place for script in project.scripts for name, place in _handed_whole(script)}
    for config in project.configs:
        for path, held in _mappings(config.values, ""):
            section = path.rpartition(".")[2]
            if held.get("torch_adam") is True and _is_deepspeeds(config.values):
                yield _finding(
                    "`torch_adam: true` makes DeepSpeed take PyTorch's AdamW, which launches several kernels for each group"
                    " of weights, in the place of its own fused one.",
                    config.places.get(f"{path}.torch_adam".lstrip("."), Place(config.file)),
                    "Take `torch_adam` out.",
                )
            elif held.get("fused") is False and section in sections and {"lr", "betas", "weight_decay"} & held.keys():
                yield _finding(
                    f"`{section}.fused: false` goes to AdamW, which then launches several kernels for each group of weights;"
                    " the fused one computes the same in one.",
                    config.places.get(f"{path}.fused".lstrip("."), Place(config.file)),
                    "Write `fused: true`.",
                    sections[section],
                )


def _is_deepspeeds(values: Mapping[Any, Any]) -> bool:
    """Of a configuration whose optimizer runs on the GPU."""
    return "zero_optimization" in values and "offload_optimizer" not in str(values["zero_optimization"])


def _handed_whole(script: Script) -> Iterator[tuple[str, Place]]:
    """`AdamW(params, **cfg.optim)` in a program for a GPU: the last part of what is handed on."""
    if not (on_device(script) or re.search(r"\blightning|pytorch_lightning", script.source)):
        return
    for call in script.calls:
        if re.fullmatch(r"torch\.optim\.(?:\w+\.)?Adam\w?", call.name):
            for name in re.findall(r"\*\*[\w.\[\]\"']*?(\w+)[\"'\]]*\s*[,)]", text_at(script, call.place)):
                yield name, call.place


def _mappings(values: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    yield path, values
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _mappings(value, f"{path}.{key}".lstrip("."))


def _finding(says: str, place: Place, instead: str, *also: Place) -> Finding:
    return Finding(
        says,
        place=place,
        evidence=Evidence(Level.TEXT, {"fused": False}),
        stake=Stake(AtStake.TIME, 0.0, 0.03, _FULL_TRAINING),
        remedy=Remedy(Risk.SAFE, instead, measure="dynotune profile -- python train.py"),
        also=also,
    )
