"""The adapters' weights in the precision that is computed with: cast together, and never older than the weights.

Autocast casts each weight in each call: two launches a linear. Here one call casts all of them when the model's forward
begins. Values cannot be out of date: the weights' version counters do not say so (PyTorch's fused optimizers and writes
through `.data` leave them as they are), so every forward casts, whoever changed the weights and however.
"""

from collections.abc import Iterable
from operator import is_

import torch
from torch import Tensor

from dynotune.model.lora.linear import FusedLinear
from dynotune.model.lora.shared import LoraShared
from dynotune.model.shared_input import Passes

ALIGN = 128
"""Elements: each weight begins at a multiple of 256 bytes, so that no product meets an unaligned operand."""


class ComputeCopies(Passes):
    """Low-precision copies of the float32 weights of `linears`, at addresses that stay (a captured graph may hold them)."""

    def __init__(self, linears: Iterable[FusedLinear], dtype: torch.dtype) -> None:
        super().__init__()
        self.linears = [linear for linear in linears if linear.is_copied]
        self.shared: list[LoraShared] = []
        self.dtype = dtype
        self._weights: list[Tensor] = []
        self._copies: list[Tensor] = []
        self.refresh()

    def share(self, shared: list[LoraShared]) -> None:
        """Lay the A of linears that share their input one below the other."""
        self.shared, self._weights = shared, []
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast all weights: one call, a few launches."""
        if not self.linears:
            return
        weights = [weight for linear in self.linears for weight in linear.weights()]
        if self._must_allocate(weights):
            self._allocate(weights)
        torch._foreach_copy_(self._copies, weights)

    @torch.no_grad()
    def refresh_one(self, linear: FusedLinear) -> None:
        """Cast the weights of one linear that is called by itself, outside a pass."""
        if self.in_a_pass:
            return
        A, B = linear.weights()
        a, b = linear.a, linear.b
        if a is None or b is None or a.shape != A.shape or b.shape != B.shape or a.device != A.device:
            self.refresh()
        else:
            torch._foreach_copy_([a.data, b.data], [A, B])

    def begins(self) -> None:
        """Refresh whenever a pass begins."""
        self.refresh()

    def _must_allocate(self, weights: list[Tensor]) -> bool:
        """New parameters came, or the model moved to another device."""
        same = len(weights) == len(self._weights) and all(map(is_, weights, self._weights))
        return not same or weights[0].device != self._copies[0].device

    def _allocate(self, weights: list[Tensor]) -> None:
        """Lay the copies out in one buffer a device."""
        self._weights = weights
        blocks: list[list[tuple[FusedLinear, str]]] = [[(linear, "b")] for linear in self.linears]
        blocks += [[(linear, "a") for linear in shared.linears] for shared in self.shared]
        blocks += [[(linear, "a")] for linear in self.linears if linear.shared is None]
        with torch.inference_mode(False):  # a tensor made in inference mode can never be saved for a backward pass
            for device in {weight.device for weight in weights}:
                here = [block for block in blocks if block[0][0].weights()[0].device == device]
                sizes = [sum(_weight(*item).numel() for item in block) for block in here]
                flat = torch.empty(sum(-(-n // ALIGN) * ALIGN for n in sizes), dtype=self.dtype, device=device)
                start = 0
                for block, size in zip(here, sizes, strict=True):
                    _place(block, flat[start : start + size])
                    start += -(-size // ALIGN) * ALIGN
            # Written through `.data`: a second forward before the first one's backward casts the same values again, which
            # must not count as a change of what was saved.
            views = [view for linear in self.linears for view in (linear.a, linear.b)]
            self._copies = [view.data for view in views if view is not None]


def _weight(linear: FusedLinear, kind: str) -> Tensor:
    return linear.weights()["ab".index(kind)]


def _place(block: list[tuple[FusedLinear, str]], flat: Tensor) -> None:
    parts = flat.split([_weight(*item).numel() for item in block])
    for (linear, kind), part in zip(block, parts, strict=True):
        setattr(linear, kind, part.view(_weight(linear, kind).shape))
    if len(block) > 1:
        shared = block[0][0].shared
        assert shared is not None
        shared.a = flat.view(-1, _weight(*block[0]).shape[1])
