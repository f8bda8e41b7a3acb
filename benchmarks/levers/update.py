"""Clipping and fused AdamW, beside the clipping factor given to AdamW, and all weights in one buffer."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.levers.bench import BYTES, Bench, Row, off
from benchmarks.levers.lora import GROUPS, RANK, widths
from dynotune.train.optimizer import Update

KINDS = ("ours", "grad_scale", "one buffer")


class Way:
    """Weights of its own, from the same start, and an update of them."""

    def __init__(self, kind: str, start: list[Tensor]) -> None:
        self.kind = kind
        values = [torch.cat([one.flatten() for one in start])] if kind == "one buffer" else [w.clone() for w in start]
        self.weights = [nn.Parameter(value) for value in values]
        self.adamw = torch.optim.AdamW(self.weights, lr=1e-2, fused=True)
        self.update = Update(self.weights, self.adamw, 0.0 if kind == "unclipped" else 1.0)
        self.one = torch.ones((), device=start[0].device)

    def given(self, grads: list[Tensor]) -> list[Tensor]:
        return [torch.cat([g.flatten() for g in grads])] if self.kind == "one buffer" else [g.clone() for g in grads]

    def __call__(self, grads: list[Tensor]) -> None:
        for weight, grad in zip(self.weights, grads, strict=True):
            weight.grad = grad
        if self.kind != "grad_scale":
            self.update(self.one)
            return
        norm = torch.nn.utils.get_total_norm(grads)
        self.adamw.grad_scale = (norm + 1e-6).clamp_min(1.0)  # AdamW divides by it: the inverse of clipping's factor
        self.adamw.found_inf = (~torch.isfinite(norm)).to(torch.float32)
        self.adamw.step()

    def flat(self) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.weights])


def after_two(kind: str, start: list[Tensor], grads: list[Tensor]) -> Tensor:
    """How far weights are from where they were. Two gradients of unlike size: AdamW's first step does not see a scale."""
    way = Way(kind, start)
    way(way.given(grads))
    way(way.given([0.3 * g + 0.1 for g in grads]))
    return way.flat() - torch.cat([one.flatten() for one in start])


def update_rows(bench: Bench) -> Iterator[Row]:
    width, layers = widths(bench.shape), 2 if bench.rehearse else 28
    adapters = [size for i, os in GROUPS.values() for o in os for size in ((RANK, width[i]), (width[o], RANK))] * layers
    full = [(64, 64)] * 4 if bench.rehearse else [(4864, 896)] * 72 + [(896, 896)] * 48 + [(151936, 896)]
    for name, sizes in (("adapters of 7B", adapters), ("0.5B in full", full)):
        if bench.late():
            return
        start = [torch.randn(*size, device=bench.device) * 0.02 for size in sizes]
        grads = [torch.randn(*size, device=bench.device) for size in sizes]
        right = after_two("ours", start, grads)
        errors = {kind: off(after_two(kind, start, grads), right) for kind in (*KINDS[1:], "unclipped")}
        ok = max(errors[kind] for kind in KINDS[1:]) < 1e-4 < errors["unclipped"]  # the last: negative control
        ways = {}
        for kind in KINDS:
            way = Way(kind, start)
            given = way.given(grads)
            ways[kind] = bench.ms(lambda way=way, given=given: way(given))
            del way, given
        # Bytes a value: clipping reads for the norm, reads and writes; AdamW reads w, g, m, v and writes w, m, v.
        floor = 1e3 * 40 * right.numel() / BYTES
        yield {"part": "update", "case": name, "ok": ok, "errors": errors, "floor_ms": floor, "ways": ways}
