"""The packed path: documents side by side in a static token count, isolated from each other, none of them divided."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.execution.path import Document, HostBatch
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.aside import Aside
from dynotune.model.attention import hidden_states
from dynotune.model.packed import PackedBatch, lay_side_by_side
from dynotune.objectives.sft import Objective
from dynotune.plan.truncation import Units, as_predicting, predicting

if TYPE_CHECKING:
    from dynotune.speedups.site import Site


class PackedPath(SideBySidePath):
    """Micro-batches as `PackedBatch`: one forward pass through the layers, then the head."""

    def __init__(self, site: "Site", objective: Objective, asides: Mapping[str, Aside] | None = None) -> None:
        super().__init__(site, asides)
        self.objective = objective

    def host_batch(self, items: Sequence[Document], tokens: int, pin: bool) -> HostBatch:
        laid = lay_side_by_side(items, tokens, last=False)
        return HostBatch(laid.buffer(pin), laid.unpack)

    def tokens_of(self, item: Document) -> int:
        return int(predicting(np.array(len(item[0]))))

    def units(self, units: Units) -> Units:
        return as_predicting(units)

    def made_up(self, units: Units, rows: NDArray[np.int64], vocabulary: int) -> list[Document]:
        ids = [np.arange(n, dtype=np.int32) % vocabulary for n in units.sequence_lengths_of(rows).tolist()]
        return [(one, one) for one in ids]

    def loss(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        run = None if self.site.launched else self.site.layers
        hidden_TD = (run or hidden_states)(self.model, batch)
        if self.site.labelled_rows:
            return self.head(hidden_TD, batch, self.objective)
        return self.loss_of_all_logits(hidden_TD, batch)

    def loss_of_all_logits(self, hidden_TD: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """As `loss`, with the logits of every token at once, in float32, and their gradient by autograd."""
        next_T = torch.full_like(batch.ids_T, IGNORE)
        next_T[batch.predictors_N] = batch.targets_N
        return self.objective.of_next(self.head.few_logits(hidden_TD), next_T)

    def loss_one_by_one(self, batch: PackedBatch) -> Tensor:
        hidden_TD = self._hidden_one_by_one(batch.ids_T.split(list(batch.lengths)))
        return self.head(hidden_TD, batch, self.objective)[0]
