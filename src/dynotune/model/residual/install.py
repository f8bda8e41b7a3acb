"""Putting sums into the kernels of the norms behind them, and taking them out again; where they are, why not elsewhere."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.foreign import FOREIGN, in_a_line
from dynotune.model.another_kind import OfAnotherKind, by_reason
from dynotune.model.aside import Aside
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.elementwise.norm import FusedNorm, SumFirst, reference
from dynotune.model.elementwise.proof import random, why_different
from dynotune.model.residual.named_sums import NONE, with_named_sums
from dynotune.model.residual.standing import LayerForward, Sums
from dynotune.model.two_tokens import run_two_tokens

ROWS = 33
"""Of the comparison: no multiple of a tile's."""

Terms = tuple[torch.dtype, torch.dtype]


@dataclass(frozen=True, slots=True)
class Pair:
    """A sum, and the norm that takes it."""

    layer: str
    number: int
    """Among the sums in the layer's code."""

    norm: str
    terms: Terms


Found = tuple[list[Pair], dict[str, str]]
"""The pairs, and norms without one, by name, with the reason."""


@dataclass(frozen=True, slots=True)
class Engaged:
    """Where sums are computed by norms, until `uninstall`."""

    norms: dict[str, SumFirst]
    """By name of the norm."""

    others: dict[str, str]
    """Norms that do not, by name, with the reason."""

    layers: list[LayerForward]
    aside: Aside

    @property
    def forwards(self) -> list[tuple[nn.Module, Any]]:
        """Layers, and what stands in the place of each one's forward."""
        return [(one.layer, one) for one in self.layers]

    def lines(self) -> list[str]:
        """What is to be said: n of N, and why not the others."""
        left = {name: why for name, why in self.others.items() if not isinstance(why, OfAnotherKind)}
        lines = [f"sums in the RMSNorm behind them: {len(self.norms)} of {len(self.norms) + len(left)} norms"]
        return lines + [f"without the sum before it: {line}" for line in by_reason(left)]

    def uninstall(self) -> None:
        """Give every layer its own forward back. Twice is once."""
        for layer in self.layers:
            layer.take_out()
        for first in self.norms.values():
            first.waiting = None
            if first.fused.adds is first:
                first.fused.adds = None


def install(
    model: nn.Module, compute: torch.dtype, once: Callable[[Callable[[], Found]], Found] = lambda look: look()
) -> Engaged:
    """Let norms of `model` in whose place our kernel stands compute the sum before them, where a layer's code adds two
    values and that very tensor is what the norm is called with next.

    Two tokens are run through the decoder to see that. once: asks for it, or knows it. The kernel is compared with torch's
    sum and RMSNorm's formula, with gradients, for each size and precision of norms. `compute` is the dtype of products.
    """
    modules = dict(model.named_modules())
    fused = {name: module.__dict__["forward"] for name, module in modules.items()
             if isinstance(module.__dict__.get("forward"), FusedNorm)}  # fmt: skip
    pairs, others = once(lambda: _find(model, modules, fused, compute))
    aside, norms = Aside(), {}
    sums: dict[str, Sums] = {}
    for pair in pairs:
        one, home = fused[pair.norm], _layer_of(pair.norm, modules)
        first = SumFirst(one, pair.terms, aside)
        one.adds = norms[pair.norm] = first
        there = modules[pair.norm], one, first, modules[home] if home else None
        sums.setdefault(pair.layer, Sums(aside)).norms[pair.number] = there
    layers = [LayerForward(modules[name], _named(modules[name])) for name in sums]
    for layer, answers in zip(layers, sums.values(), strict=True):
        layer.put_in(answers)
    return Engaged(norms, others, layers, aside)


def _named(layer: nn.Module) -> FunctionType:
    changed = with_named_sums(type(layer).forward)
    assert not isinstance(changed, str), changed
    return changed


def _layer_of(name: str, modules: Mapping[str, nn.Module]) -> str | None:
    """The name of the layer that a module is in: the outermost item of a list of modules on the way to it."""
    parts = name.split(".")
    for i in range(1, len(parts)):
        if isinstance(modules.get(".".join(parts[:i])), nn.ModuleList):
            return ".".join(parts[: i + 1])
    return None


def _find(model: Any, modules: Mapping[str, nn.Module], fused: Mapping[str, FusedNorm], compute: torch.dtype) -> Found:
    others: dict[str, str] = {name: OfAnotherKind("what it takes is no sum in a layer's code") for name in fused}
    layers: dict[str, nn.Module] = {}
    for name in fused:
        layer = _layer_of(name, modules)
        if layer is None:
            continue
        reason = _why_not(modules[layer])
        if reason is None:
            layers[layer] = modules[layer]
        else:
            others[name] = reason
    pairs, failed = _look(model, layers, {name: modules[name] for name in fused}, compute)
    if failed is not None:
        return [], dict.fromkeys(fused, f"two tokens could not be run through the model ({failed})")
    compared: dict[Any, str | None] = {}
    kept: list[Pair] = []
    for pair in pairs:
        one = fused[pair.norm]
        weight: Any = one.parameters["weight"]
        of = one.form, one.d, weight.dtype, weight.requires_grad, pair.terms
        if of not in compared:
            compared[of] = _compare(one, weight, pair.terms)
        if (why := compared[of]) is None:
            kept.append(pair)
            del others[pair.norm]
        else:
            others[pair.norm] = why
    return kept, others


def _why_not(layer: nn.Module) -> str | None:
    """Why the sums in a layer's code stay there; None where they need not."""
    if "forward" in layer.__dict__:
        return "its layer's forward was replaced by someone else"
    changed = with_named_sums(type(layer).forward)
    if not isinstance(changed, str):
        return None
    return OfAnotherKind(changed) if changed == NONE else changed


def _look(
    model: Any, layers: Mapping[str, nn.Module], norms: Mapping[str, nn.Module], compute: torch.dtype
) -> tuple[list[Pair], str | None]:
    """Which norm is called with which sum, of those that are computed once in a pass and whose norm is called once."""
    made: list[tuple[str, int, Terms, Tensor, int]] = []
    calls: list[tuple[str, Tensor, int]] = []

    def watching(name: str) -> Callable[..., Any]:
        def answer(number: int, a: Any, b: Any) -> Any:
            total = a + b
            if all(isinstance(x, Tensor) for x in (a, b)) and a.shape == b.shape and total.dtype in (a.dtype, b.dtype):
                made.append((name, number, (a.dtype, b.dtype), total, total._version))
            return total

        return answer

    def note(name: str) -> Callable[..., Any]:
        return lambda module, args: calls.append((name, args[0], args[0]._version)) if args else None

    standing = {name: LayerForward(layer, _named(layer)) for name, layer in layers.items()}
    for name, one in standing.items():
        one.put_in(watching(name))
    handles = [module.register_forward_pre_hook(note(name)) for name, module in norms.items()]
    try:
        _, failed = run_two_tokens(model, [text_decoder(model)], compute)
    finally:
        for handle in handles:
            handle.remove()
        for one in standing.values():
            one.take_out()
    if failed:
        return [], failed
    of_sums = Counter((name, number) for name, number, *_ in made)
    of_norms = Counter(name for name, *_ in calls)
    pairs: list[Pair] = []
    for name, number, terms, total, version in made:
        takers = [taker for taker, x, then in calls if x is total and then == version]
        if len(takers) == 1 and of_sums[name, number] == 1 and of_norms[takers[0]] == 1:
            pairs.append(Pair(name, number, takers[0], terms))
    return pairs, None


def _compare(one: FusedNorm, weight: Tensor, terms: Terms) -> str | None:
    """Why the kernel is not torch's sum and the norm's formula; None if it is."""
    if one.kernels.sum_rms_norm is None:
        return "its kernel has no sum"
    function = one.kernels.sum_rms_norm.apply
    scale = torch.tensor([1.0, 4.0, 0.25], device=weight.device)[:, None]
    inputs = [scale * random((ROWS // 3, 3, one.d), seed, weight.device) for seed in (3, 4)]
    inputs.append(0.6 + 0.3 * random((one.d,), 5, weight.device))

    def own(a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = a + b
        return total, reference(total, w, *one.form)

    def ours(a: Tensor, b: Tensor, w: Tensor) -> Any:
        return function(a, b, w, *one.form)

    try:
        return why_different(own, ours, inputs, (True, True, weight.requires_grad), (*terms, weight.dtype))
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except FOREIGN + one.kernels.failures as error:
        return f"it cannot be compared with the kernel ({in_a_line(error)})"
