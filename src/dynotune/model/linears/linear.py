"""The forward that stands in for that of one trained `torch.nn.Linear`: which modules it can take, when it steps aside."""

from collections.abc import Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.model.another_kind import OfAnotherKind
from dynotune.model.aside import Aside
from dynotune.model.autocast import autocasts, computes_in, short
from dynotune.model.linears.function import TrainedLinears
from dynotune.model.shared_input import Passes, SharedInput

KEPT = "_dynotune_trained_linear"
"""Attribute of a module: the `TrainedLinear` that stands in for it."""


class TrainedLinear:
    """What the `forward` of `module` calls while it stands in, a linear for which `why_not` gives None."""

    def __init__(self, module: nn.Linear, compute: torch.dtype, wide: bool, passes: Passes, aside: Aside) -> None:
        self.module, self.compute, self.wide, self.passes, self.aside = module, compute, wide, passes, aside
        self.dtype = module.weight.dtype
        self.shared: TrainedShared | None = None
        self.place = 0
        self.forward = MethodType(_forward, module)

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """`x` [..., I]; gives [..., O]."""
        # The compiler casts and adds in the kernels around it; without gradients there are none to add, and autocast keeps
        # its copies of weights from one call to the next, which sampling needs.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return self._own(x, *args, **kwargs)
        if args or kwargs or not self.is_plain(x):
            self.aside.calls += 1
            return self._own(x, *args, **kwargs)
        if self.shared is not None and self.passes.in_a_pass:
            y = self.shared.output(self, x)
            if y is not None:
                return y
        (y,) = together([self], x)
        return y

    def _own(self, *args: Any, **kwargs: Any) -> Tensor:
        return type(self.module).forward(self.module, *args, **kwargs)

    def parameters(self) -> tuple[Any, Any]:
        """Weight and bias as they are now."""
        own = self.module._parameters
        return own["weight"], own["bias"]

    def kind(self) -> tuple[Any, ...]:
        """What linears must have in common to be computed together."""
        weight, _ = self.parameters()
        return weight.dtype, weight.device, weight.shape[1], self.wide

    def is_plain(self, x: Tensor) -> bool:
        """Whether a call computes what autocast would, in the precision that this was made for."""
        weight, bias = self.parameters()
        return (
            type(weight) is nn.Parameter
            and weight.dtype is self.dtype
            and (bias is None or bias.dtype is self.dtype)
            and weight.device == x.device
            and (x.is_meta or (computes_in(x, self.compute) and (weight.dtype is x.dtype or autocasts(x))))
        )

    def put_in(self) -> None:
        """Stand in for the module."""
        setattr(self.module, KEPT, self)
        self.module.forward = self.forward  # type: ignore[method-assign]

    def take_out(self) -> None:
        """Give the module its own forward back, if it is still this one that stands in."""
        if self.module.__dict__.get("forward") is self.forward:
            del self.module.forward
            delattr(self.module, KEPT)


class TrainedShared(SharedInput[TrainedLinear]):
    """As `SharedInput`."""

    def __init__(self, linears: list[TrainedLinear]) -> None:
        super().__init__(linears)
        for linear in linears:
            linear.shared = self

    def together(self, x: Tensor) -> Sequence[Tensor] | None:
        kind = self.linears[0].kind()
        if not all(other.is_plain(x) and other.kind() == kind for other in self.linears[1:]):
            return None
        return together(self.linears, x)


def together(linears: Sequence[TrainedLinear], x: Tensor) -> tuple[Tensor, ...]:
    weights, biases = zip(*(linear.parameters() for linear in linears), strict=True)
    first = linears[0]
    return TrainedLinears.apply(x, first.compute, first.wide, *weights, *biases)  # type: ignore[no-any-return, no-untyped-call]


def _forward(module: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return getattr(module, KEPT)(x, *args, **kwargs)  # type: ignore[no-any-return]


def why_not(module: nn.Linear, compute: torch.dtype) -> str | None:
    """Why `module` keeps its own forward; None if `TrainedLinear` can stand in for it."""
    weight, bias = module.weight, module.bias
    if "forward" in module.__dict__:
        return "its forward was replaced by someone else"
    if not weight.requires_grad:
        return OfAnotherKind("its weight is not trained")
    if type(weight) is not nn.Parameter:
        return f"its weight is a {type(weight).__name__}, not a plain parameter"
    if weight.dtype not in (compute, torch.float32):
        return f"its weight is {short(weight.dtype)} and products are in {short(compute)}"
    if bias is not None and bias.dtype != weight.dtype:
        return f"its bias is {short(bias.dtype)} and its weight {short(weight.dtype)}"
    return None
