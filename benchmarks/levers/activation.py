"""The gated activation of a feed-forward under LoRA: adapters' parts added by products of their own, or in its kernel.

Predicted at 16,384 tokens of the 7B shape, forward and backward: products 3 times 0.49 ms and kernels 1.15 (8 tensors of
621 MB at 4.3 TB/s), together 2.6; inside 1.2 to 1.4, so 34 to 39 ms of a step of 886.
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
from dynotune.model.lora.left_out import LeftOut

TILES = ((64, 64, 8), (64, 128, 16), (32, 64, 4), (16, 128, 4), (128, 64, 16), (64, 32, 4), (64, 64, 4), (64, 128, 8))
"""Rows, columns and warps of a program."""


class Activation:
    """gate and up of the frozen weights, u, v, and the gradient of the frozen weights below."""

    def __init__(self, bench: Bench, tokens: int, width: int) -> None:
        self.bench = bench
        self.gate, self.up, self.dh = (bench.random(tokens, width) for _ in range(3))
        self.u, self.v = bench.random(tokens, 2 * RANK, std=0.1), bench.random(tokens, RANK, std=0.1)
        self.b = [bench.random(width, RANK, std=0.1) for _ in range(2)]
        self.a = bench.random(RANK, width, std=0.1)

    def by_products(self) -> tuple[Tensor, ...]:
        """As without: into the outputs of the frozen products, which nobody else holds. Here that repeats itself and the
        values grow, so this way is timed alone."""
        gated = self._gated()
        for wide, low, b in zip((self.gate, self.up), self.u.split(RANK, 1), self.b, strict=True):
            wide.addmm_(low, b.t(), alpha=SCALE)
        leaves = [one.detach().requires_grad_() for one in (self.gate, self.up)]
        h = gated(*leaves)
        self.dh.addmm_(self.v, self.a, alpha=SCALE)
        return (h.detach(), *torch.autograd.grad(h, leaves, self.dh))

    def _gated(self) -> Any:
        if self.bench.rehearse:
            return lambda gate, up: reference(False, gate, up)
        from dynotune.model.elementwise.triton_gate import Gated

        return lambda gate, up: Gated.apply(gate, up, False)  # type: ignore[no-untyped-call]

    def inside(self, tile: tuple[int, int, int]) -> tuple[Tensor, ...]:
        leaves = [one.detach().requires_grad_() for one in (self.gate, self.up)]
        below = LeftOut("gradient", self.v, (self.a,), scale=SCALE)
        h = self._function(tile)(*leaves, self.u, *self.b, SCALE, SCALE, below, False)
        return (h.detach(), *torch.autograd.grad(h, leaves, self.dh))

    def _function(self, tile: tuple[int, int, int]) -> Any:
        if self.bench.rehearse:
            return gate_lora.reference
        from dynotune.model.elementwise import triton_gate_lora

        triton_gate_lora.ROWS, triton_gate_lora.COLUMNS, triton_gate_lora.WARPS = tile
        return triton_gate_lora.GatedLora.apply

    def right(self) -> tuple[Tensor, ...]:
        """In float32, of the same operands."""
        leaves = [one.float().detach().requires_grad_() for one in (self.gate, self.up)]
        below = LeftOut("gradient", self.v.float(), (self.a.float(),), scale=SCALE)
        u, b = self.u.float(), [one.float() for one in self.b]
        h = gate_lora.reference(*leaves, u, *b, SCALE, SCALE, below, False)
        return (h.detach(), *torch.autograd.grad(h, leaves, self.dh.float()))


def activation_rows(bench: Bench) -> Iterator[Row]:
    width = widths(bench.shape)["i"]
    for tokens in (70,) if bench.rehearse else (16384, 2112, 320):
        ways: dict[str, tuple[int, int, int]] = {}
        errors: dict[str, list[float]] = {}
        failed: dict[str, str] = {}
        one = Activation(bench, min(tokens, 4096), width)  # right is right at any number of rows; float32 takes room
        right = one.right()
        limit = 1e-5 if bench.rehearse else 5e-3  # of bfloat16, rounded once: 2e-3
        for tile in TILES[:1] if bench.rehearse else TILES:
            name = "inside {}x{} by {}".format(*tile)
            if bench.late():
                break
            try:
                found = one.inside(tile)
            except Exception as error:  # noqa: BLE001 - a tile that the card has no room for says nothing of the others
                failed[name] = f"{type(error).__name__}: {error}"[:300]
                continue
            errors[name] = [off(f, r) for f, r in zip(found, right, strict=True)]
            ways[name] = tile
        one.u.zero_()  # the control: without the adapters' parts it is something else
        control = all(off(f, r) > 2 * limit for f, r in zip(one.inside(TILES[0]), right, strict=True))
        del one, right
        wide = Activation(bench, tokens, width)
        timed = {name: bench.ms(partial(wide.inside, tile)) for name, tile in ways.items()}
        timed["products"] = bench.ms(wide.by_products)
        yield {
            "part": "activation", "case": f"{tokens} tokens", "errors": errors, "failed": failed,
            "ok": control and bool(errors) and all(e <= limit for es in errors.values() for e in es),
            "floor_ms": 1e3 * 8 * tokens * width * wide.gate.element_size() / BYTES, "ways": timed,
        }  # fmt: skip
        del wide
