"""The plain path: one document at a time, stock transformers forward, all logits, no speed-up.

The baseline of every comparison, and what an architecture gets that cannot be packed.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.execution.path import Document, HostBatch
from dynotune.model.forward import logits_of_document
from dynotune.model.without_cudnn import without_cudnn_attention
from dynotune.objectives.sft import Objective
from dynotune.plan.truncation import Units, as_whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PlainPath:
    """Documents as `(ids_T, labels_T)`, each with a forward pass of its own."""

    labelled_rows_head = False

    def __init__(self, model: "PreTrainedModel", objective: Objective) -> None:
        self.model, self.objective = model, objective

    def host_batch(self, items: Sequence[Document], tokens: int, pin: bool) -> HostBatch:
        if not items:  # a rank that has none in this micro-batch computes a loss of zero, with gradients of zero
            items = [(np.zeros(tokens, np.int32), np.full(tokens, IGNORE, np.int32))]
        lengths = [len(ids) for ids, _ in items]
        buffer = torch.empty((2, sum(lengths)), dtype=torch.int64, pin_memory=pin)
        np.concatenate([ids for ids, _ in items], out=buffer[0].numpy())
        np.concatenate([labels for _, labels in items], out=buffer[1].numpy())

        def unpack(both: Tensor) -> list[tuple[Tensor, Tensor]]:
            return list(zip(both[0].split(lengths), both[1].split(lengths), strict=True))

        return HostBatch(buffer, unpack)

    def tokens_of(self, item: Document) -> int:
        return len(item[0])

    def units(self, units: Units) -> Units:
        return as_whole(units)

    def engaged(self) -> AbstractContextManager[Any]:
        return without_cudnn_attention()  # what is recomputed in the backward pass, too

    def notes(self) -> list[str]:
        return []

    def loss(self, batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        losses, sums = [], []
        for ids_T, labels_T in batch:
            loss, some = self.objective(logits_of_document(self.model, ids_T), labels_T)
            losses.append(loss)
            sums.append(some)
        return torch.stack(losses).sum(), torch.stack(sums).sum(0)
