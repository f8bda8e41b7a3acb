"""The gated activation of a feed-forward under LoRA: adapters' parts and gradients by their own products or in its kernel.

Floors at 16,384 tokens of the 7B shape, forward and backward: kernels 1.15 ms (8 tensors of 621 MB at 4.3 TB/s), three sums
that read and write a tensor 0.86 more, three gradients that read one 0.43 more. Seen on an H200: kernels 1.15 by themselves,
sums 1.53, gradients 0.49; all together inside 1.45 (`benchmarks/results/h200_lora_in_activation.json`).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.levers.bench import BYTES, Bench, Row, off
from benchmarks.levers.lora import RANK, SCALE, widths
from dynotune.model.elementwise import gate_lora
from dynotune.model.elementwise.gate import reference
from dynotune.model.lora.function import has_wide_products, scaled_product
from dynotune.model.lora.left_out import LeftOut

Shape = tuple[int, int, int, int]
"""As `triton_gate_lora.Tile`, which a machine without Triton has not: rows and columns of a program, warps, stages."""

FORWARD: tuple[Shape, ...] = (
    (64, 64, 8, 3), (64, 64, 4, 3), (64, 64, 8, 2), (32, 64, 4, 3), (32, 128, 8, 3), (64, 128, 8, 3),
)  # fmt: skip
BACKWARD: tuple[Shape, ...] = (
    (32, 64, 4, 3), (16, 64, 4, 3), (32, 64, 4, 2), (16, 128, 4, 4), (32, 64, 8, 3), (64, 64, 8, 3),
)  # fmt: skip
"""The first of each is what runs."""


class Activation:
    """gate and up of the frozen weights, u, v, the gradient of the frozen weights below, and what is trained."""

    def __init__(self, bench: Bench, tokens: int, width: int) -> None:
        self.bench, self.wide = bench, has_wide_products(bench.device, bench.low)
        self.gate, self.up, self.dh = (bench.random(tokens, width) for _ in range(3))
        self.u, self.v = bench.random(tokens, 2 * RANK, std=0.1), bench.random(tokens, RANK, std=0.1)
        self.b = [bench.random(width, RANK, std=0.1) for _ in range(2)]
        self.a = bench.random(RANK, width, std=0.1)
        self.trained = [one.float().requires_grad_() for one in (*self.b, self.a)]

    def by_products(self) -> tuple[Tensor, ...]:
        """As without: into the outputs of the frozen products, which nobody else holds. Here that repeats itself and the
        values grow, so this way is timed alone."""
        gated = self._gated()
        for wide, low, b in zip((self.gate, self.up), self.u.split(RANK, 1), self.b, strict=True):
            wide.addmm_(low, b.t(), alpha=SCALE)
        leaves = [one.detach().requires_grad_() for one in (self.gate, self.up)]
        h = gated(*leaves)
        self.dh.addmm_(self.v, self.a, alpha=SCALE)
        wide = torch.autograd.grad(h, leaves, self.dh)
        pairs = [(d.t(), u) for d, u in zip(wide, self.u.split(RANK, 1), strict=True)] + [(self.v.t(), h.detach())]
        weights = [
            scaled_product(one.detach(), *pair, SCALE, self.wide) for one, pair in zip(self.trained, pairs, strict=True)
        ]
        return (h.detach(), *wide, *weights)

    def _gated(self) -> Any:
        if self.bench.rehearse:
            return lambda gate, up: reference(False, gate, up)
        from dynotune.model.elementwise.triton_gate import Gated

        return lambda gate, up: Gated.apply(gate, up, False)  # type: ignore[no-untyped-call]

    def inside(self, forward: Shape = FORWARD[0], backward: Shape = BACKWARD[0]) -> tuple[Tensor, ...]:
        below = LeftOut("gradient", self.v, (self.a,), scale=SCALE)
        leaves = [one.detach().requires_grad_() for one in (self.gate, self.up)]
        h = self._function(forward, backward)(*leaves, self.u, *self.b, *self.trained, SCALE, SCALE, below, False)
        return (h.detach(), *torch.autograd.grad(h, (*leaves, *self.trained), self.dh))

    def _function(self, forward: Shape, backward: Shape) -> Any:
        if self.bench.rehearse:
            return gate_lora.reference
        from dynotune.model.elementwise import triton_gate_lora

        tile = triton_gate_lora.Tile
        triton_gate_lora.FORWARD, triton_gate_lora.BACKWARD = tile(*forward), tile(*backward)
        return triton_gate_lora.GatedLora.apply

    def right(self) -> tuple[Tensor, ...]:
        """In float32, of the same operands."""
        leaves = [one.float().detach().requires_grad_() for one in (self.gate, self.up)]
        below = LeftOut("gradient", self.v.float(), (self.a.float(),), scale=SCALE)
        u, b = self.u.float(), [one.float() for one in self.b]
        h = gate_lora.reference(*leaves, u, *b, *self.trained, SCALE, SCALE, below, False)
        return (h.detach(), *torch.autograd.grad(h, (*leaves, *self.trained), self.dh.float()))


def activation_rows(bench: Bench) -> Iterator[Row]:
    width = widths(bench.shape)["i"]
    tried = {"forward {}x{} by {}, {}".format(*one): (one, BACKWARD[0]) for one in FORWARD}
    tried |= {"backward {}x{} by {}, {}".format(*one): (FORWARD[0], one) for one in BACKWARD}
    for tokens in (70,) if bench.rehearse else (16384, 2112, 320):
        ways: dict[str, tuple[Shape, Shape]] = {}
        errors: dict[str, list[float]] = {}
        failed: dict[str, str] = {}
        one = Activation(bench, min(tokens, 4096), width)  # right is right at any number of rows; float32 takes room
        right = one.right()
        limit = 1e-5 if bench.rehearse else 5e-3  # of bfloat16, rounded once: 2e-3
        for name, tiles in list(tried.items())[: 1 if bench.rehearse else None]:
            if bench.late():
                break
            try:
                found = one.inside(*tiles)
            except Exception as error:  # noqa: BLE001 - a tile that the card has no room for says nothing of the others
                failed[name] = f"{type(error).__name__}: {error}"[:300]
                continue
            errors[name] = [off(f, r) for f, r in zip(found, right, strict=True)]
            ways[name] = tiles
        one.u.zero_()  # the control: without the adapters' parts it is something else
        control = all(off(f, r) > 2 * limit for f, r in zip(one.inside(), right, strict=True))
        del one, right
        wide = Activation(bench, tokens, width)
        timed = {name: bench.ms(partial(wide.inside, *tiles)) for name, tiles in ways.items()}
        timed["products"] = bench.ms(wide.by_products)
        yield {
            "part": "activation", "case": f"{tokens} tokens", "errors": errors, "failed": failed,
            "ok": control and bool(errors) and all(e <= limit for es in errors.values() for e in es),
            "floor_ms": 1e3 * 8 * tokens * width * wide.gate.element_size() / BYTES, "ways": timed,
        }  # fmt: skip
        del wide
