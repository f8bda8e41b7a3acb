"""What stands in for a layer's forward, and what answers its sums."""

from types import FunctionType
from typing import Any

import torch
from torch import nn

from dynotune.model.aside import Aside
from dynotune.model.elementwise.norm import PLUS, FusedNorm, SumFirst
from dynotune.model.residual.named_sums import ANSWERS
from dynotune.model.standing import stands


class LayerForward:
    """Called as `forward` of a layer: its own code with its sums named. Where the layer is compiled, computed again in the
    backward pass or its class has another forward by now, that of its class."""

    def __init__(self, layer: nn.Module, changed: FunctionType) -> None:
        self.layer, self.changed = layer, changed
        self.own = type(layer).forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer = self.layer
        # The compiler fuses sums by itself.
        if torch.compiler.is_compiling() or is_computed_again(layer) or type(layer).forward is not self.own:
            return type(layer).forward(layer, *args, **kwargs)
        return self.changed(layer, *args, **kwargs)

    def put_in(self, answers: Any) -> None:
        """Stand in for the layer, whose sums `answers` answers."""
        setattr(self.layer, ANSWERS, answers)
        self.layer.forward = self

    def take_out(self) -> None:
        """Give the layer its own forward back, if it is still this one that stands in."""
        if self.layer.__dict__.get("forward") is self:
            del self.layer.forward
            delattr(self.layer, ANSWERS)


class Sums:
    """Answers the sums of one layer."""

    def __init__(self, aside: Aside) -> None:
        self.norms: dict[int, tuple[nn.Module, FusedNorm, SumFirst, nn.Module | None]] = {}
        """By the sum's number: the norm behind it, and the layer that this one is in, if any."""

        self.aside = aside

    def __call__(self, number: int, a: Any, b: Any) -> Any:
        there = self.norms.get(number)
        if there is None or torch.is_inference_mode_enabled():  # its tensors do not tell whether they were changed
            return a + b
        norm, fused, first, layer = there
        forward = norm.__dict__.get("forward")
        if (
            fused.adds is not first or not stands(forward, fused) or not first.takes(a, b)
            or (layer is not None and is_computed_again(layer))  # which would not see what was computed before it
        ):  # fmt: skip
            self.aside.calls += 1
            return a + b
        # Past the norm's hooks, which are for its own call; within the range that a trace has around its forward.
        return forward(a, **{PLUS: b})  # type: ignore[misc]


def is_computed_again(layer: nn.Module) -> bool:
    """Whether transformers computes `layer` again in the backward pass of what it computes now."""
    return bool(getattr(layer, "gradient_checkpointing", False)) and layer.training
