"""Putting the kernels into a model's modules, and taking them out again; where they are, and why not elsewhere."""

from collections.abc import Collection, Hashable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dynotune.foreign import FOREIGN, in_a_line
from dynotune.model.another_kind import by_reason
from dynotune.model.aside import Aside
from dynotune.model.elementwise import gate, norm, rotary
from dynotune.model.elementwise.alike import Verdicts
from dynotune.model.elementwise.usable import Kernels, usable

KINDS = {"RMSNorm": norm.is_candidate, "gated activation": gate.is_candidate, "rotary embedding": rotary.is_candidate}


@dataclass(frozen=True, slots=True)
class Engaged:
    """Where kernels stand in, until `uninstall`."""

    fused: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    """By kind, then by module name: what answers in the place of the module's own operations."""

    others: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    """Modules of each kind that keep their own forward, by name, with the reason."""

    called: str = "elementwise kernels"
    """What they are called in what is said."""

    why_not: str | None = None
    """Why no kernel runs on this GPU; None if they do, and where there is no GPU."""

    aside: Aside = field(default_factory=Aside)

    _replaced: dict[tuple[str, str], tuple[nn.Module, Any]] = field(default_factory=dict)
    """By kind and module name: the module, and what stands in the place of its forward."""

    @property
    def forwards(self) -> list[tuple[nn.Module, Any]]:
        """Modules, and what stands in the place of each one's forward."""
        return list(self._replaced.values())

    @property
    def calls_to_own(self) -> int:
        """Calls that the module's own operations answered: dtypes, devices or arguments that the kernel was not made for."""
        return self.aside.calls

    def lines(self) -> list[str]:
        """What is to be said: n of N of each kind, and why not the others. Nothing where there is no GPU."""
        if self.why_not:
            return [f"{self.called} are not used: {self.why_not}"]
        totals = {kind: len(self.fused[kind]) + len(self.others[kind]) for kind in KINDS}
        counts = [f"{len(self.fused[kind])} of {total} {kind}s" for kind, total in totals.items() if total]
        lines = [f"{self.called}: {', '.join(counts)}"] if counts else []
        for kind, others in self.others.items():
            lines += [f"{kind} without kernel, its own operations: {line}" for line in by_reason(others)]
        return lines

    def leave(self, kind: str, name: str, reason: str) -> None:
        """Give one module its own forward back."""
        del self.fused[kind][name]
        self.others[kind][name] = reason
        _take_out(*self._replaced.pop((kind, name)))

    def uninstall(self) -> None:
        """Give every module its own forward back. Twice is once."""
        for module, forward in self._replaced.values():
            _take_out(module, forward)


def _take_out(module: nn.Module, forward: Any) -> None:
    if module.__dict__.get("forward") is forward:
        del module.forward


def install(
    model: nn.Module,
    compute: torch.dtype,
    kinds: Collection[str] = tuple(KINDS),
    kernels: Kernels | None = None,
    called: str = "elementwise kernels",
    compared: MutableMapping[Hashable, Any] | None = None,
) -> Engaged:
    """Replace elementwise operations of `model` by kernels that compute the same, on these instances only.

    kinds: of modules, by name (`KINDS`).
    kernels: somebody else's, which run where the model is. Default: ours, where they run.
    called: what they are called in what is said.
    compared: what came of comparing modules of this model, of calls before this one too: none is compared twice.

    `compute` is the dtype that activations have. Each module's own forward is compared with the kernel on random inputs,
    with gradients, in float32 and in `compute`, or that of one that is alike; where they differ it stays. Modules, names,
    parameters and files stay as they are, and so does the random state. Without a GPU nothing happens.
    """
    device = next(model.parameters()).device
    found = kernels or usable(device)
    if not isinstance(found, Kernels):
        return Engaged(called=called, why_not=found)
    engaged, widths = Engaged(called=called), rotary.table_widths(model)
    known, verdicts = {} if compared is None else compared, dict[Hashable, Any]()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # a module that is tried out may draw
        for kind, name, module in _candidates(model, kinds):
            replacement: tuple[Any, Any] | str | None = _why_not(module, compute, device)
            if replacement is None:
                of = called, kind, name, id(module), compute
                if of not in known:  # with the module, whose number is then nobody else's
                    known[of] = module, _replacement(kind, module, found, compute, widths, verdicts)
                _, replacement = known[of]
            if isinstance(replacement, str):
                if kind != "RMSNorm" or norm.calls_itself_one(module):
                    engaged.others[kind][name] = replacement
                continue
            engaged.fused[kind][name], forward = replacement
            replacement[0].aside = engaged.aside
            module.forward = forward
            engaged._replaced[kind, name] = module, forward
    return engaged


def _candidates(model: nn.Module, kinds: Collection[str]) -> Iterator[tuple[str, str, nn.Module]]:
    for name, module in model.named_modules():
        for kind, is_candidate in KINDS.items():
            if kind in kinds and is_candidate(module):
                yield kind, name, module


def _why_not(module: nn.Module, compute: torch.dtype, device: torch.device) -> str | None:
    """Why nothing stands in for a module here, whatever it computes; None where something may."""
    if "forward" in module.__dict__:
        return "its forward was replaced by someone else"
    if any(p.device != device for p in module.parameters()):
        return f"it is not on {device}"
    if compute not in norm.PRECISIONS:
        return f"there is no kernel for {compute}"
    return None


def _replacement(
    kind: str, module: nn.Module, kernels: Kernels, compute: torch.dtype, widths: set[int], verdicts: Verdicts
) -> tuple[Any, Any] | str:
    """What answers, and what becomes the forward, or why nothing does."""
    try:
        if kind == "rotary embedding":
            return rotary.fused_rotary(module, kernels, compute, widths, verdicts)
        found = (norm.fused_norm if kind == "RMSNorm" else gate.fused_gate)(module, kernels, compute, verdicts)
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except FOREIGN + kernels.failures as error:
        return f"it cannot be compared with the kernel ({in_a_line(error)})"
    return found if isinstance(found, str) else (found, found)
