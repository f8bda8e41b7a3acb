"""Gated feed-forward modules: which the kernel can stand in for, and the forward that does."""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.aside import Aside
from dynotune.model.elementwise.alike import Verdicts, likeness, once_for_alike
from dynotune.model.elementwise.proof import random, why_different
from dynotune.model.elementwise.usable import Kernels

if TYPE_CHECKING:
    from dynotune.model.elementwise.gate_lora import AdaptersBetween

APART, TOGETHER = ("gate_proj", "up_proj", "down_proj"), ("gate_up_proj", "down_proj")
"""Names of the linears in the order in which they are called, of Llama and its kin and of Phi-3."""

ROWS = 3


class FusedGate:
    """Called as `forward` of `module`: its linears in its order and with its tensors, and one kernel between them."""

    def __init__(
        self, module: nn.Module, kernels: Kernels, together: bool, tanh: bool, proven: Iterable[torch.dtype]
    ) -> None:
        self.module, self.together, self.tanh = module, together, tanh
        self.function = (kernels.gated_halves if together else kernels.gated).apply
        self.children = module._modules
        self.place = next(module.parameters()).get_device()
        others = [child for name, child in module.named_children() if name not in APART + TOGETHER]
        self.watched = [t for child in others for t in (child._forward_hooks, child._forward_pre_hooks,
                        child._backward_hooks, child._backward_pre_hooks)]  # fmt: skip
        """Where hooks of the activation would be: they must see it called."""

        self.proven = {*proven}
        """Dtypes for which kernel and module were compared."""

        self.aside = Aside()
        self.adapters: AdaptersBetween | None = None
        """What adds the adapters' parts of its linears in the kernel; None where they come with them."""

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """`x` [..., D]; gives [..., D]."""
        compiling = torch.compiler.is_compiling()  # the compiler fuses the module's own operations by itself
        if compiling or args or kwargs or any(self.watched):
            if not compiling:
                self.aside.calls += 1
            return type(self.module).forward(self.module, x, *args, **kwargs)  # type: ignore[no-any-return]
        children: Any = self.children
        if self.adapters is not None and (hidden := self.adapters(x)) is not None:
            try:
                return children["down_proj"](hidden)  # type: ignore[no-any-return]
            finally:
                self.adapters.close()
        if self.together:
            h = self.between(children["gate_up_proj"](x))
        else:
            h = self.between(children["gate_proj"](x), children["up_proj"](x))
        return children["down_proj"](h)  # type: ignore[no-any-return]

    def between(self, *projected: Tensor) -> Tensor:
        """From the outputs of the first linears to the input of the last."""
        first, last = projected[0], projected[-1]
        if (
            first.dtype not in self.proven or last.dtype is not first.dtype or last.shape != first.shape
            or first.get_device() != self.place or last.get_device() != self.place
        ):  # fmt: skip
            self.aside.calls += 1
            return reference(self.tanh, *projected)
        return self.function(*projected, self.tanh)  # type: ignore[no-any-return]


def is_candidate(module: nn.Module) -> bool:
    """A module with the linears of a gated feed-forward."""
    names = {name for name, _ in module.named_children()}
    return names.issuperset(APART) or names.issuperset(TOGETHER)


def fused_gate(
    module: nn.Module, kernels: Kernels, compute: torch.dtype, verdicts: Verdicts | None = None
) -> FusedGate | str:
    """The forward that stands in for that of `module`, a candidate, or why there is none. In a skeleton, which computes
    nothing, they are not compared. verdicts: of modules before it."""
    names = {name for name, _ in module.named_children()}
    together = not names.issuperset(APART)
    linears = TOGETHER if together else APART
    if next(module.parameters(recurse=False), None) is not None:
        return OfAnotherKind("it has parameters of its own")
    down: Any = module._modules["down_proj"]
    width = getattr(down, "in_features", None)
    if not isinstance(width, int):
        return f"its down_proj is a {type(down).__name__}, whose width cannot be told"
    if any(
        next(child.parameters(), None) is not None for name, child in module.named_children() if name not in linears
    ):
        return OfAnotherKind("what lies between its linears has parameters")  # theirs would get no gradient
    device = next(module.parameters()).device
    if device.type == "meta":
        return FusedGate(module, kernels, together, tanh=False, proven=(compute, torch.float32))
    shapes = [(ROWS, 2 * width)] if together else [(ROWS, width), (ROWS, width)]

    def judge() -> tuple[bool, str | None]:
        """Whether its GELU is by tanh, and how the kernel differs from it."""
        inputs = [2 * random(shape, i, device) for i, shape in enumerate(shapes)]

        def own(*projected: Tensor) -> Tensor:
            return _by_itself(module, linears, projected)

        with torch.no_grad():
            right = own(*inputs)
            off = [float((reference(tanh, *inputs) - right).norm()) for tanh in (False, True)]
        fused = FusedGate(module, kernels, together, tanh=off[1] < off[0], proven=(compute, torch.float32))
        return fused.tanh, why_different(own, fused.between, inputs, [True] * len(inputs), [compute] * len(inputs))

    like = likeness(module, but=linears)
    tanh, reason = once_for_alike(verdicts, like and (like, width), judge)
    return reason or FusedGate(module, kernels, together, tanh=tanh, proven=(compute, torch.float32))


def reference(tanh: bool, *projected: Tensor) -> Tensor:
    """What the kernel computes, by torch's operations."""
    gate, up = projected if len(projected) == 2 else projected[0].chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") if tanh else F.silu(gate)) * up


class _Given(nn.Module):
    """In the place of a linear: notes that it was called with what, and gives what it was given, or else its input."""

    def __init__(self, calls: list[tuple["_Given", Tensor]], output: Tensor | None) -> None:
        super().__init__()
        self.calls, self.output = calls, output

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((self, x))
        return x if self.output is None else self.output


def _by_itself(module: nn.Module, linears: tuple[str, ...], projected: tuple[Tensor, ...]) -> Tensor:
    """The module's own forward with stand-ins for its linears, so that only what lies between them is computed.

    On a shallow copy, in training mode: where it drops out, that shows. The module itself is not touched.
    """
    calls: list[tuple[_Given, Tensor]] = []
    stand_ins = [_Given(calls, output) for output in (*projected, None)]
    others = {n: copy.deepcopy(child).train() for n, child in module.named_children() if n not in linears}
    twin = copy.copy(module)
    twin.__dict__["_modules"] = {**others, **dict(zip(linears, stand_ins, strict=True))}
    twin.training = True
    x = projected[0].detach()
    out: Tensor = type(module).forward(twin, x)
    if [stand_in for stand_in, _ in calls] != stand_ins or any(given is not x for _, given in calls[:-1]):
        raise ValueError("it does not call its linears once each, in the order " + ", ".join(linears))
    return out
