"""Where cheap operations stand in a model: norms and gated activations, under kernels or by the modules' own operations."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dynotune.model.activations.keeping import Around
from dynotune.model.activations.remade import Remaking
from dynotune.model.elementwise import gate, norm
from dynotune.model.elementwise.usable import Kernels

KINDS = {"norms": norm.is_candidate, "gated activations": gate.is_candidate}


@dataclass(slots=True)
class Cheap:
    """Results that are made again, until `uninstall`."""

    remaking: Remaking
    around: Around
    kinds: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """Names of modules whose results are made again."""

    others: dict[str, str] = field(default_factory=dict)
    """Modules whose results are kept, with the reason."""

    _undo: list[Callable[[], None]] = field(default_factory=list)

    def uninstall(self) -> None:
        """Twice is once."""
        self.around.take_out()
        while self._undo:
            self._undo.pop()()

    def lines(self) -> list[str]:
        counts = [f"{len(names)} {kind}" for kind, names in self.kinds.items() if names]
        return [f"made again in the backward pass instead of kept: the results of {' and '.join(counts)}"]


def remake_cheap(model: nn.Module, decoder: nn.Module, compute: torch.dtype) -> Cheap | str:
    """Put it into `decoder`, the one of `model`; or why there is nothing to put it into.

    compute: the dtype of activations. A gated activation is found by what it computes, on random numbers of its own.
    """
    remaking = Remaking()
    found = Cheap(remaking, Around(decoder, remaking))
    outer = {id(module): name for name, module in model.named_modules()}
    for module in decoder.modules():
        name = outer[id(module)]
        if norm.calls_itself_one(module):
            _remake_norm(name, module, remaking, found._undo)
            found.kinds["norms"].append(name)
        elif gate.is_candidate(module):
            reason = _remake_gate(name, module, remaking, compute, found._undo)
            if reason is None:
                found.kinds["gated activations"].append(name)
            else:
                found.others[name] = reason
    if not found.kinds["gated activations"]:  # the larger part by far
        found.uninstall()
        why = next(iter(found.others.values()), "its layers have none")
        return f"no gated activation was found that could be made again: {why}"
    found.around.put_in()
    return found


def adapter_drops_out(model: nn.Module) -> bool:
    """Whether LoRA drops out of its input: it then keeps that, of every linear apart."""
    return any(
        isinstance(module, nn.Dropout) and module.p > 0
        for name, module in model.named_modules()
        if ".lora_dropout." in name
    )


class _OwnAgain:
    """Called as `forward` of a norm: its own one, of whose steps nothing is kept."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = type(self.module).forward.__get__(self.module)
        if not torch.is_grad_enabled():
            return own(*args, **kwargs)
        return checkpoint(own, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _remake_norm(name: str, module: nn.Module, remaking: Remaking, undo: list[Callable[[], None]]) -> None:
    # A hook, not another forward: a kernel that stands there, and may be taken out, stays whose it is.
    def note(module: Any, args: tuple[Any, ...], result: Any) -> None:
        if len(args) == 1 and isinstance(args[0], Tensor) and isinstance(result, Tensor):
            remaking.made(result, module.forward, args[0], name=name)

    undo.append(module.register_forward_hook(note).remove)
    if "forward" not in module.__dict__:
        own = _OwnAgain(module)
        module.forward = own
        undo.append(lambda: _take_out(module, own))


def _remake_gate(
    name: str, module: nn.Module, remaking: Remaking, compute: torch.dtype, undo: list[Callable[[], None]]
) -> str | None:
    """None, or why it is left alone."""
    there = module.__dict__.get("forward")
    if isinstance(there, gate.FusedGate):
        own = there.between
        _note_between(name, there, own, own, remaking)
        undo.append(lambda: there.__dict__.pop("between", None))
        return None
    if there is not None:
        return "its forward was replaced by someone else"
    fused = gate.fused_gate(module, _in_torch(), compute)
    if isinstance(fused, str):
        return fused
    inner = fused.between

    def between(*projected: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return inner(*projected)
        return checkpoint(inner, *projected, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]

    _note_between(name, fused, between, inner, remaking)
    module.forward = fused
    undo.append(lambda: _take_out(module, fused))
    return None


def _note_between(name: str, fused: gate.FusedGate, make: Any, again: Any, remaking: Remaking) -> None:
    def between(*projected: Tensor) -> Tensor:
        result: Tensor = make(*projected)
        remaking.made(result, again, *projected, name=name)
        return result

    fused.__dict__["between"] = between


def _take_out(module: nn.Module, forward: Any) -> None:
    if module.__dict__.get("forward") is forward:
        del module.forward


class _InTorch:
    """In the place of a kernel's autograd function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.apply = function


def _in_torch() -> Kernels:
    """The gated activation by PyTorch's operations."""
    gated = _InTorch(lambda gates, ups, tanh: gate.reference(tanh, gates, ups))
    halves = _InTorch(lambda both, tanh: gate.reference(tanh, both))
    return Kernels(None, gated, halves, None, (RuntimeError,), on_cpu=True)
