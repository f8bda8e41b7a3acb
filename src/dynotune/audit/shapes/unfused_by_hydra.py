"""AdamW that Hydra makes of a configuration's `_target_`, which says nothing of how it runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.steps import loops, on_device
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_TARGETS = frozenset({"torch.optim.AdamW", "torch.optim.Adam", "torch.optim.adamw.AdamW", "torch.optim.adam.Adam"})
_HOW = frozenset({"fused", "foreach", "capturable", "differentiable"})


def unfused_by_hydra(project: Project) -> Iterator[Said]:
    texts = [code(one) for one in project.scripts]
    if not any("instantiate(" in one for one in texts) or any("fused" in one for one in texts):
        return
    if not any(on_device(one) and any(loops(one)) for one in project.scripts):
        return
    for config in project.configs:
        for path, made in _made(config.values, ""):
            if made["_target_"] in _TARGETS and not _HOW & set(made):
                place = config.places.get(f"{path}._target_".lstrip("."), Place(config.file))
                yield Finding(
                    f"`_target_: {made['_target_']}` without `fused: true` launches several kernels for each group of"
                    " weights; the fused one computes the same in one.",
                    place=place,
                    evidence=Evidence(Level.TEXT, {"optimizer": made["_target_"], "fused": False}),
                    stake=Stake(AtStake.TIME, 0.0, 0.03, "full training of a 0.5B to 7B model"),
                    remedy=Remedy(
                        Risk.SAFE, "Write `fused: true` beside it.", measure="dynotune profile -- python train.py"
                    ),
                )


def _made(values: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Mappings with a `_target_`, and their keys' path."""
    if isinstance(values.get("_target_"), str):
        yield path, values
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _made(value, f"{path}.{key}".lstrip("."))
