"""Loss and gradient of the LM head by rows of a chunk, beside its two products alone."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.head_problem import Problem, float32_reference
from benchmarks.levers.bench import FLOPS, Bench, Row, off
from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.head import linear
from dynotune.model.head.logit_map import LogitMap
from dynotune.objectives.sft import SFTObjective


def products(hidden_TD: Tensor, weight_VD: Tensor, z_CV: Tensor, into_CD: Tensor) -> None:
    """Forward and input gradient of all tokens, a chunk at a time, without what stands between them."""
    for rows_CD in hidden_TD.split(len(z_CV)):
        n = len(rows_CD)
        torch.mm(rows_CD, weight_VD.t(), out=z_CV[:n])
        torch.mm(z_CV[:n], weight_VD, out=into_CD[:n])


def head_rows(bench: Bench) -> Iterator[Row]:
    tokens, width, vocabulary = (48, 64, 512) if bench.rehearse else (16384, 3584, 152064)
    objective, logits, kept = SFTObjective(SFTObjectiveConfig()), LogitMap(), linear.chunks
    small = Problem(bench.device, 48 if bench.rehearse else 512, width, vocabulary, precision=bench.low)
    right = float32_reference(small, logits, objective)
    plain = [off(f, r) for f, r in zip(small.plain(logits, objective), right, strict=True)]
    problem = Problem(bench.device, tokens, width, vocabulary, precision=bench.low)
    flops = 4 * tokens * width * vocabulary
    try:
        for rows in (16, 48) if bench.rehearse else (2048, 4096, 8192, 16384):
            if bench.late():
                return
            linear.chunks = lambda n, *_, rows=rows: [(i, min(i + rows, n)) for i in range(0, n, rows)]
            errors = [off(f, r) for f, r in zip(small.ours(logits, objective), right, strict=True)]
            ok = all(e <= max(1.5 * p, 1e-5) for e, p in zip(errors, plain, strict=True))
            weight, hidden = problem.layer.weight, problem.hidden_TD.detach()
            z = torch.empty(min(rows, tokens), vocabulary, dtype=bench.low, device=bench.device)
            into = torch.empty(min(rows, tokens), width, dtype=bench.low, device=bench.device)
            with torch.no_grad():
                alone = bench.ms(partial(products, hidden, weight, z, into), 5)
            ways = {"ours": bench.ms(lambda: problem.ours(logits, objective), 5), "its two products": alone}
            for one in ways.values():
                one["TFLOP/s"] = flops / one["ms"] / 1e9 if one["ms"] else 0.0
            yield {
                "part": "head", "case": f"{rows} rows a chunk", "ok": ok, "errors": {"ours": errors, "plain": plain},
                "floor_ms": 1e3 * flops / FLOPS, "ways": ways,
            }  # fmt: skip
    finally:
        linear.chunks = kept
