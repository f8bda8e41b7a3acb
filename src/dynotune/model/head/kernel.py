"""Which row function a device gets: the Triton kernel where it works and is right, else torch's operations, and why."""

from functools import cache

import torch

from dynotune.foreign import in_a_line
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import Rows, rows_in_torch, statistics
from dynotune.objectives.row_loss import RowLoss

_TOLERANCE = 1e-4
"""Of float32 arithmetic whose exponentials differ in the last bits."""


@cache
def row_function(device: torch.device) -> tuple[Rows, str | None]:
    """The row function for `device`, and why it is not the kernel where it could be. Tried once a process."""
    if device.type != "cuda":
        return rows_in_torch, None
    try:
        from dynotune.model.head import triton_rows
    except ImportError as error:
        return rows_in_torch, f"Triton cannot be imported ({error})"
    try:
        off = disagreement(triton_rows.rows_in_triton, device)
    except triton_rows.FAILURES as error:
        return rows_in_torch, f"Triton does not work here ({in_a_line(error)})"
    if off > _TOLERANCE:
        return rows_in_torch, f"Triton's kernel is wrong here (off by {off:.2g})"
    return triton_rows.rows_in_triton, None


def disagreement(rows: Rows, device: torch.device) -> float:
    """Largest difference of `rows` from torch's operations over every kind of loss, in float32. Waits for the device."""
    random = torch.Generator().manual_seed(0)
    z_NV = (torch.randn(5, 20_011, generator=random) * 5).to(device)
    targets_N = torch.randint(0, 20_011, (5,), generator=random).to(device)
    worst = 0.0
    for loss in (RowLoss(), RowLoss(smoothing=0.1), RowLoss(by_probability=True)):
        for logits in (LogitMap(), LogitMap(scale=0.5, cap=3.0)):
            results = []
            for function in (rows, rows_in_torch):
                own, out_3N = z_NV.clone(), statistics(len(z_NV), z_NV)
                function(own, targets_N, loss, logits, True, out_3N)
                results.append(torch.cat([own.flatten(), out_3N.flatten()]))
            off = (results[0] - results[1]).abs().amax().nan_to_num(nan=torch.inf)
            worst = max(worst, float(off))
    return worst
