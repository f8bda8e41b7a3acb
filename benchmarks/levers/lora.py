"""The linears of one layer that share an input, with LoRA: frozen products alone, PEFT's way, ours, and in one product."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.levers.bench import FLOPS, Bench, Row, off
from dynotune.model.lora.function import LoraLinears, has_wide_products

RANK, SCALE = 32, 2.0
GROUPS = {"q, k, v": ("h", ("h", "kv", "kv")), "o": ("h", ("h",)), "gate, up": ("h", ("i", "i")), "down": ("i", ("h",))}


def widths(shape: dict[str, Any]) -> dict[str, int]:
    keys = shape["hidden_size"] // shape["num_attention_heads"] * shape["num_key_value_heads"]
    return {"h": shape["hidden_size"], "kv": keys, "i": shape["intermediate_size"]}


class Linears:
    """Frozen W, trained float32 A and B of linears with one input, and the ways to compute them.

    A way takes x [T, I] and the gradients g [T, O]; it gives outputs, the gradient of x, and those of A and B.
    """

    def __init__(self, bench: Bench, inputs: int, outputs: list[int], tokens: int) -> None:
        self.bench, self.wide = bench, has_wide_products(bench.device, bench.low)
        self.W = [bench.random(o, inputs, std=inputs**-0.5) for o in outputs]
        self.A = [torch.randn(RANK, inputs, device=bench.device).mul_(inputs**-0.5).requires_grad_() for _ in outputs]
        self.B = [torch.randn(o, RANK, device=bench.device).mul_(0.02).requires_grad_() for o in outputs]
        self.x, self.g = bench.random(tokens, inputs), [bench.random(tokens, o) for o in outputs]
        self.a = torch.cat([A.detach() for A in self.A]).to(bench.low)
        self.b = [B.detach().to(bench.low) for B in self.B]
        self.all_W = torch.cat(self.W)
        low, n = bench.low, sum(outputs)
        ranks = RANK * len(outputs)
        # B of each linear in its own columns, so that [x, su] meets W and B at once; likewise [g, sv] and [W; A].
        self.W_B = torch.zeros(n, inputs + ranks, dtype=low, device=bench.device)
        self.W_B[:, :inputs] = self.all_W
        row = 0
        for i, (o, b) in enumerate(zip(outputs, self.b, strict=True)):
            self.W_B[row : row + o, inputs + i * RANK : inputs + (i + 1) * RANK] = b
            row += o
        self.W_A = torch.cat([self.all_W, self.a])
        self.outputs, self.inputs, self.ranks = outputs, inputs, ranks
        self.x_u = torch.zeros(tokens, inputs + ranks, dtype=low, device=bench.device)
        self.x_u[:, :inputs] = self.x
        self.g_v = torch.zeros(tokens, n + ranks, dtype=low, device=bench.device)

    def frozen(self) -> tuple[Tensor, ...]:
        ys = [F.linear(self.x, W) for W in self.W]
        dx = self.g[0] @ self.W[0]
        for g, W in zip(self.g[1:], self.W[1:], strict=True):
            dx.addmm_(g, W)
        return (*ys, dx)

    @torch.no_grad()
    def frozen_by_rows(self, rows: int) -> tuple[Tensor, ...]:
        """As `frozen`, so many tokens at a time: products of 1k to 4k rows were seen to run faster than of 16k."""
        ys = [self.x.new_empty(len(self.x), len(W)) for W in self.W]
        dx = torch.empty_like(self.x)
        for i in range(0, len(self.x), rows):
            own = slice(i, i + rows)
            for y, W in zip(ys, self.W, strict=True):
                torch.mm(self.x[own], W.t(), out=y[own])
            torch.mm(self.g[0][own], self.W[0], out=dx[own])
            for g, W in zip(self.g[1:], self.W[1:], strict=True):
                dx[own].addmm_(g[own], W)
        return (*ys, dx)

    def frozen_in_one(self) -> tuple[Tensor, ...]:
        return F.linear(self.x, self.all_W), torch.cat(self.g, 1) @ self.all_W

    def peft(self) -> tuple[Tensor, ...]:
        x = self.x.detach().requires_grad_()
        with torch.autocast(self.bench.device.type, self.bench.low, enabled=self.bench.low != torch.float32):
            ys = [
                F.linear(x, W) + F.linear(F.linear(x, A), B) * SCALE
                for W, A, B in zip(self.W, self.A, self.B, strict=True)
            ]
        return (*(y.detach() for y in ys), *torch.autograd.grad(ys, (x, *self.A, *self.B), self.g))

    def ours(self) -> tuple[Tensor, ...]:
        x, n = self.x.detach().requires_grad_(), len(self.W)
        low = None if self.bench.low == torch.float32 else self.a
        bs = (None,) * n if low is None else tuple(self.b)
        ys = LoraLinears.apply(x, None, low, SCALE, self.wide, None, *self.W, *(None,) * n, *self.A, *self.B, *bs)  # type: ignore[no-untyped-call]
        return (*(y.detach() for y in ys), *torch.autograd.grad(ys, (x, *self.A, *self.B), self.g))

    def _adapters(self, u: Tensor, v: Tensor) -> list[Tensor]:
        """Gradients of A and B in float32. u = x A', v = g B."""
        dA = (v.t() @ self.x).float() * SCALE
        us = u.split(RANK, 1)
        return [*dA.split(RANK), *((g.t() @ one).float() * SCALE for g, one in zip(self.g, us, strict=True))]

    @torch.no_grad()
    def in_one(self, copies: bool = True) -> tuple[Tensor, ...]:
        """One product forward, one back. copies: x and g are brought into the wide buffers; without, producers wrote there
        (the time that is left if every producer did: its gradient comes out the same)."""
        n, inputs = sum(self.outputs), self.inputs
        if copies:
            self.x_u[:, :inputs] = self.x
            torch.cat(self.g, 1, out=self.g_v[:, :n]) if not self.bench.rehearse else self.g_v[:, :n].copy_(
                torch.cat(self.g, 1)
            )
        u = F.linear(self.x, self.a)
        torch.mul(u, SCALE, out=self.x_u[:, inputs:])
        y = F.linear(self.x_u, self.W_B)
        v = torch.cat([g @ b for g, b in zip(self.g, self.b, strict=True)], 1)
        torch.mul(v, SCALE, out=self.g_v[:, n:])
        dx = self.g_v @ self.W_A
        return (*y.split(self.outputs, 1), dx, *self._adapters(u, v))

    def reference(self) -> tuple[Tensor, ...]:
        """In float32, of the operands as every way gets them."""
        x = self.x.float().requires_grad_()
        As = [one.float().requires_grad_() for one in self.a.split(RANK)]
        Bs = [b.float().requires_grad_() for b in self.b]
        ys = [
            F.linear(x, W.float()) + F.linear(F.linear(x, A), B) * SCALE for W, A, B in zip(self.W, As, Bs, strict=True)
        ]
        return (*(y.detach() for y in ys), *torch.autograd.grad(ys, (x, *As, *Bs), [g.float() for g in self.g]))


def lora_rows(bench: Bench) -> Iterator[Row]:
    for tokens in (32,) if bench.rehearse else (16384, 2048, 256):
        for name, (inputs, outputs) in GROUPS.items():
            if bench.late():
                return
            width = widths(bench.shape)
            linears = Linears(bench, width[inputs], [width[o] for o in outputs], tokens)
            right = linears.reference()
            ways: dict[str, Callable[[], tuple[Tensor, ...]]] = {
                "peft": linears.peft,
                "ours": linears.ours,
                "one product": linears.in_one,
            }
            errors = {way: [off(f, r) for f, r in zip(call(), right, strict=True)] for way, call in ways.items()}
            wrong = [1.05 * one for one in right]
            limits = [max(1.5 * e, 1e-5) for e in errors["peft"]]
            control = all(off(w, r) > limit for w, r, limit in zip(wrong, right, limits, strict=True))
            ok = control and all(e <= limit for es in errors.values() for e, limit in zip(es, limits, strict=True))
            del right, wrong
            ways |= {"frozen": linears.frozen, "frozen in one": linears.frozen_in_one}
            ways["one product, no copies"] = lambda it=linears: it.in_one(copies=False)
            for rows in (16,) if bench.rehearse else (2048, 4096):
                if rows < tokens:
                    ways[f"frozen, {rows} rows"] = partial(linears.frozen_by_rows, rows)
            flops = 4 * tokens * width[inputs] * sum(width[o] for o in outputs)
            yield {
                "part": "lora", "case": f"{name}, {tokens} tokens", "ok": ok, "errors": errors,
                "floor_ms": 1e3 * flops / FLOPS, "ways": {way: bench.ms(call) for way, call in ways.items()},
            }  # fmt: skip
            del linears
