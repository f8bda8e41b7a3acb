"""Compares the Triton kernel with torch's operations in Triton's interpreter.

A process of its own: the interpreter is chosen by the environment before Triton is imported. Exits with 0 if all agree, with
77 if this interpreter cannot run a loop.
"""

import itertools
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.errors import TritonError

from dynotune.model.head.kernel import disagreement
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import rows_in_torch, statistics
from dynotune.model.head.triton_rows import rows_in_triton
from dynotune.objectives.row_loss import RowLoss


@triton.jit
def _count(Out, n):
    total = 0.0
    for _ in range(0, n, 1):
        total += 1.0
    tl.store(Out, total)


def interpreter_works() -> bool:
    """Triton 3.6's interpreter fails on any loop with numpy 2.4."""
    out = torch.zeros(1)
    try:
        _count[(1,)](out, 3)
    except TritonError as error:
        print(f"Triton {triton.__version__}'s interpreter does not run with numpy {np.__version__}: {error}")
        return False
    return out.item() == 3


def compare(
    z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, form: bool, block: int, group: int
) -> None:
    """Both functions on rows of a wider buffer, whose rest must stay as it is."""
    n, vocabulary = z_NV.shape
    results = []
    for function, more in ((rows_in_torch, {}), (rows_in_triton, {"block": block, "warps": 4, "group": group})):
        buffer = torch.full((n + 1, vocabulary + 3), 7.0, dtype=z_NV.dtype)
        buffer[:n, :vocabulary] = z_NV
        out_3N = statistics(n, z_NV)
        function(buffer[:n, :vocabulary], targets_N, loss, logits, form, out_3N, **more)
        assert (buffer[n] == 7).all()
        assert (buffer[:, vocabulary:] == 7).all()
        results.append((out_3N, buffer[:n, :vocabulary]))
    (right_3N, right_NV), (out_3N, gradient_NV) = results
    torch.testing.assert_close(out_3N, right_3N, rtol=1e-5, atol=2e-5, equal_nan=True)
    torch.testing.assert_close(
        gradient_NV, right_NV, rtol=2 * torch.finfo(z_NV.dtype).eps, atol=2e-6 * max(1, logits.scale), equal_nan=True
    )


def main() -> None:
    if not interpreter_works():
        sys.exit(77)
    random = torch.Generator().manual_seed(3)
    losses = (RowLoss(), RowLoss(smoothing=0.1), RowLoss(by_probability=True))
    maps = (LogitMap(), LogitMap(cap=5.0), LogitMap(scale=0.25), LogitMap(scale=2.0, cap=3.0))
    precisions, sizes = (torch.float32, torch.bfloat16, torch.float16), ((1, 64), (63, 64), (64, 64), (300, 64))
    for i, (loss, logits, (vocabulary, block)) in enumerate(itertools.product(losses, maps, sizes)):
        z_NV = (4 * torch.randn(3, vocabulary, generator=random)).to(precisions[i % 3])
        targets_N = torch.randint(0, vocabulary, (3,), generator=random)
        compare(z_NV, targets_N, loss, logits, form=i % 5 != 0, block=block, group=(8, 1)[i % 2])
    for precision in (torch.float32, torch.bfloat16):
        most = torch.finfo(precision).max
        z_NV = torch.randn(6, 200, generator=random).to(precision)
        z_NV[0, 50:] = -torch.inf
        z_NV[1, :130] = -torch.inf  # whole blocks
        z_NV[2, 3], z_NV[2, 150] = most, -most
        z_NV[3] = 1.0  # every logit ties: the first wins
        z_NV[4, 77] = torch.nan
        z_NV[5] = -most / 2  # a logarithm beside a large magnitude
        for target in (0, 140):
            targets_N = torch.full((6,), target)
            targets_N[0] = 20
            targets_N[1] = 190
            for loss in (losses[0], losses[2]):
                compare(z_NV, targets_N, loss, LogitMap(), form=True, block=64, group=8)
    out_3N = statistics(2, torch.zeros(2, 30))
    rows_in_triton(torch.zeros(2, 30), torch.tensor([30, -100]), RowLoss(), LogitMap(), True, out_3N)
    assert out_3N[0].isnan().all(), "a target outside of the vocabulary must show"
    assert disagreement(rows_in_triton, torch.device("cpu")) < 1e-4

    def forgets_the_target(*args: object) -> None:  # negative control of the check that decides at run time
        rows_in_triton(*args)
        args[0][0, args[1][0]] += 1  # type: ignore[index]

    assert disagreement(forgets_the_target, torch.device("cpu")) > 0.5


if __name__ == "__main__":
    main()
