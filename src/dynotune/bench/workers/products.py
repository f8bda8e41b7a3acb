"""What the device can be seen to do at most: no run multiplies matrices faster than matrices alone are multiplied."""

from itertools import pairwise

import torch

SIDE = 8192
"""Of square matrices in bfloat16: the size at which the data-centre GPUs of today come nearest to their peak."""

TIMES = 20


def best_product(device: torch.device) -> float:
    """FLOPs a second of the fastest of some products, on one GPU."""
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=device) for _ in range(2))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(TIMES + 1)]
    out = a @ b
    for mark in marks[:-1]:
        mark.record()
        torch.mm(a, b, out=out)
    marks[-1].record()
    torch.cuda.synchronize(device)
    fastest = min(first.elapsed_time(second) for first, second in pairwise(marks[1:])) / 1e3
    return float(2 * SIDE**3 / fastest)
