"""The model whose parameters an optimizer steps, and the Trainer around it, among the objects of the process.

A script that is not edited hands nothing over. The collector of garbage knows every module; the one that belongs to the
optimizer's parameters and lies in no other one is the model. Looked for once, behind the first step, which is not measured.
"""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

DEEP = 4
"""Wrappers that may lie around a model: DDP, PEFT, `torch.compile`, a class of the user's."""

NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class Found:
    """What belongs to an optimizer."""

    roots: tuple[nn.Module, ...]
    """Models that hold its parameters and lie in no other: usually one. Empty where none was found."""

    trainer: Any | None
    """A Trainer of transformers, where there is one."""


def look_for(parameters: Iterable[Tensor]) -> Found:
    """parameters: of the optimizer."""
    wanted = {id(one): one.numel() for one in parameters}
    modules, trainer = [], None
    for one in gc.get_objects():
        kind = type(one)
        # Not isinstance: it asks the object itself, and some objects load a package when they are asked.
        if issubclass(kind, nn.Module):
            modules.append(one)
        elif _is_trainer(kind):
            trainer = one
    return Found(tuple(_roots(modules, wanted)), trainer)


def _is_trainer(kind: type) -> bool:
    return any(one.__name__ == "Trainer" and one.__module__ == "transformers.trainer" for one in kind.__mro__)


def _roots(modules: list[nn.Module], wanted: dict[int, int]) -> Iterator[nn.Module]:
    inside = {id(child) for one in modules for child in _children(one)}
    outer = [one for one in modules if id(one) not in inside]
    held = [(sum(wanted.get(id(p), 0) for p in one.parameters()), one) for one in outer if _is_made(one)]
    most = max((weights for weights, _ in held), default=0)
    if most == 0:
        # Sharded optimizers step copies of their own, which are in no module: the largest that trains, then.
        held = [(sum(p.numel() for p in one.parameters() if p.requires_grad), one) for _, one in held]
        most = max((weights for weights, _ in held), default=0)
    if most:
        yield from (one for weights, one in held if weights >= NEARLY_ALL * most)


def _children(module: nn.Module) -> Iterable[Any]:
    return [*module.__dict__.get("_modules", {}).values()]


def _is_made(module: nn.Module) -> bool:
    """Not in the middle of its own construction."""
    return "_parameters" in module.__dict__ and "_modules" in module.__dict__


def callable_ones(roots: Iterable[nn.Module]) -> list[nn.Module]:
    """Where a call of the model may begin: the roots, and what lies in them that holds nearly all of their parameters.

    Not what a compiled module wraps, nor a module that is compiled in place: a hook there would be compiled too.
    """
    found: list[nn.Module] = []
    for root in roots:
        level, all_of_it = [root], sum(p.numel() for p in root.parameters())
        for _ in range(DEEP):
            level = [one for one in level if getattr(one, "_compiled_call_impl", None) is None]
            found += [one for one in level if all(one is not other for other in found)]
            level = [
                child
                for one in level
                if not hasattr(one, "_orig_mod")
                for child in one.children()
                if sum(p.numel() for p in child.parameters()) >= NEARLY_ALL * all_of_it
            ]
    return found
