"""The plain path of preference pairs: each side in a pass of its own, stock transformers forward, all logits, no speed-up.

The baseline of every comparison, and what an architecture gets that cannot be packed.
Legend of shapes: T tokens of one side, V vocabulary, N label tokens of all sides, n those of one.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.execution.in_step import ReferenceInStep
from dynotune.execution.pairs import HostValues, Pair, PairValues, sides_of
from dynotune.execution.path import Document, HostBatch
from dynotune.model.forward import logits_of_document
from dynotune.model.head.plain_sequences import plain_sequence_scores
from dynotune.model.head.sequences import SequenceScores
from dynotune.model.one_copy import Index, apart, together
from dynotune.model.without_cudnn import without_cudnn_attention
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.plan.pairs import PairSpans

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Sides:
    """The sides of pairs on the device."""

    ids_T: list[Tensor]
    """int64, of each."""

    predictors_n: list[Tensor]
    """int64, of each: the positions in it before its label tokens."""

    targets_N: Tensor
    """int64. The label tokens."""

    values: PairValues


class PlainPairsPath:
    """Pairs side by side in nothing: every sequence is computed as transformers computes it alone."""

    labelled_rows_head = False

    def __init__(
        self, model: "PreTrainedModel", objective: PreferenceObjective, in_step: ReferenceInStep | None = None
    ) -> None:
        self.model, self.objective, self.in_step = model, objective, in_step or ReferenceInStep()

    def host_batch(self, items: Sequence[Pair], tokens: int, pin: bool) -> HostBatch:
        values = HostValues(items, self.objective)
        documents: list[Document] = sides_of(items)
        if not items:  # a rank that has none in this micro-batch computes a loss of zero, with gradients of zero
            documents = [(np.zeros(tokens, np.int32), np.full(tokens, IGNORE, np.int32))]
        lengths = [len(ids) for ids, _ in documents]
        labelled = [np.flatnonzero(labels[1:] != IGNORE) for _, labels in documents]
        counts = [len(at_n) for at_n in labelled]
        targets = [labels[at_n + 1] for (_, labels), at_n in zip(documents, labelled, strict=True)]
        own: list[Index] = [
            np.concatenate([ids for ids, _ in documents]).astype(np.int64),
            np.concatenate(labelled),
            np.concatenate(targets).astype(np.int64),
        ]
        arrays = [*own, *values.arrays]

        def unpack(buffer: Tensor) -> Sides:
            ids_T, predictors_N, targets_N, *more = apart(buffer, arrays)
            return Sides(list(ids_T.split(lengths)), list(predictors_N.split(counts)), targets_N, values.of(more))

        return HostBatch(together(arrays, pin), unpack)

    def tokens_of(self, item: Pair) -> int:
        return sum(len(ids) for ids, _ in sides_of([item]))

    def units(self, units: PairSpans) -> PairSpans:
        return units.apart()

    def engaged(self) -> AbstractContextManager[Any]:
        return without_cudnn_attention()  # what is recomputed in the backward pass, too

    def notes(self) -> list[str]:
        return []

    def scores(self, batch: Sides, *, logps_only: bool = False) -> SequenceScores:
        """As `PairsPath.scores`; all of them in any case."""
        rows = [
            logits_of_document(self.model, ids_T).index_select(0, predictors_n)
            for ids_T, predictors_n in zip(batch.ids_T, batch.predictors_n, strict=True)
        ]
        values = batch.values
        return plain_sequence_scores(
            torch.cat(rows), batch.targets_N, values.sequences_N, values.sequences, values.tails_N
        )

    def loss(self, batch: Sides) -> tuple[Tensor, Tensor]:
        return self.in_step.values(self.scores, batch).loss_of(self.scores(batch), self.objective)
