"""Row functions around a row function: one that looks at the logits before they are replaced, one that scales the gradients.

They see the rows in the order of the walk, chunk after chunk. Legend of shapes: N rows (of one chunk in a call, of the whole
walk in what is kept), V vocabulary.
"""

import torch
from torch import Tensor

from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import BLOCK_BYTES, Rows, statistics
from dynotune.objectives.row_loss import RowLoss


class Observed:
    """Also keeps what was asked for of each row. `like`: a tensor of the precision that decides the statistics' own."""

    def __init__(self, rows: Rows, n: int, like: Tensor, *, mean_logits: bool, log_sum_squares: bool) -> None:
        self.rows, self._seen = rows, 0
        room_N = statistics(n, like)[0]
        self.mean_logits_N = torch.empty_like(room_N) if mean_logits else None
        """Mean of a row's logits, as the model gives them: scaled and soft-capped."""
        self.log_sum_squares_N = torch.empty_like(room_N) if log_sum_squares else None
        """Logarithm of the sum of squared probabilities: of the probability that two draws agree."""

    def __call__(
        self, z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, form_gradient: bool, out_3N: Tensor
    ) -> None:
        first, self._seen = self._seen, self._seen + len(z_NV)
        # A mean needs no float32 copy where nothing bends the logits.
        in_blocks = self.log_sum_squares_N is not None or logits.cap is not None
        block = max(1, BLOCK_BYTES // (z_NV.shape[1] * out_3N.element_size())) if in_blocks else max(1, len(z_NV))
        for i in range(0, len(z_NV), block):
            part_NV, own = z_NV[i : i + block], slice(first + i, first + i + len(z_NV[i : i + block]))
            x_NV = logits(part_NV.to(out_3N.dtype)) if in_blocks else part_NV
            if self.mean_logits_N is not None:
                average_N = x_NV.mean(-1, dtype=out_3N.dtype)
                self.mean_logits_N[own] = average_N if in_blocks else average_N * logits.scale
            if self.log_sum_squares_N is not None:
                self.log_sum_squares_N[own] = (2 * x_NV).logsumexp(-1) - 2 * x_NV.logsumexp(-1)
        self.rows(z_NV, targets_N, loss, logits, form_gradient, out_3N)


class Scaled:
    """Gradients of the losses' sum, each row's times its factor: `factors_N` in float32 (float64)."""

    def __init__(self, rows: Rows, factors_N: Tensor) -> None:
        self.rows, self.factors_N, self._seen = rows, factors_N, 0

    def __call__(
        self, z_NV: Tensor, targets_N: Tensor, loss: RowLoss, logits: LogitMap, form_gradient: bool, out_3N: Tensor
    ) -> None:
        first, self._seen = self._seen, self._seen + len(z_NV)
        self.rows(z_NV, targets_N, loss, logits, form_gradient, out_3N)
        if form_gradient:
            z_NV *= self.factors_N[first : self._seen, None]
