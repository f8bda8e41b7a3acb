"""The packed path of preference pairs: what both sides of a pair begin with stands once in a micro-batch.

Legend of shapes: T tokens of the micro-batch, D hidden, P pairs, Q = 2 P sequences (2p chosen, 2p + 1 rejected), N label
tokens, C values of the reference for a pair: chosen, rejected, and where tails are kept the tail of either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.data.pairs import Pairs
from dynotune.execution.path import Document, HostBatch
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.aside import Aside
from dynotune.model.attention import hidden_states
from dynotune.model.families import FamilyBatch, lay_families, trunk_of
from dynotune.model.head.sequences import SequenceScores, sequence_scores
from dynotune.model.one_copy import Index, apart, together
from dynotune.objectives.preference.from_scores import pairs_of, predictions_of
from dynotune.objectives.preference.groups import in_tail
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need

if TYPE_CHECKING:
    from dynotune.speedups.contract import Site


class Pair(NamedTuple):
    """One pair on the host."""

    chosen: Document
    rejected: Document
    reference_C: NDArray[np.float64]
    """Nats; empty where the objective needs no reference, or none is known yet."""


class PairItems:
    """The pairs of a data set, as far as they are used, with their reference."""

    def __init__(self, pairs: Pairs, reference_PC: NDArray[np.float64] | None = None) -> None:
        self.pairs = pairs
        self.reference_PC = np.zeros((len(pairs), 0)) if reference_PC is None else reference_PC

    def at(self, rows: NDArray[np.int64]) -> list[Pair]:
        """The pairs of these numbers, as views of the flat arrays."""
        found = []
        for row in rows.tolist():
            chosen, rejected = self.pairs[row]
            found.append(
                Pair((chosen.ids_T, chosen.labels_T), (rejected.ids_T, rejected.labels_T), self.reference_PC[row])
            )
        return found

    def prompted(self, row: int) -> Document:
        """The chosen side."""
        return self.at(np.array([row]))[0].chosen


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Pairs on the device."""

    families: FamilyBatch
    lengths_Q: Tensor
    """int64. Label tokens of each sequence."""

    tails_N: Tensor | None
    """int64. 1 for label tokens behind the length of the pair's shorter answer, where the objective asks for them."""

    reference_PC: Tensor
    """float64."""


class PairsPath(SideBySidePath):
    """Micro-batches of whole pairs: one forward pass through the layers, the log-probability of each answer, the losses."""

    labelled_rows_head = True

    def __init__(self, site: "Site", objective: PreferenceObjective, asides: Mapping[str, Aside] | None = None) -> None:
        super().__init__(site, asides)
        self.objective = objective
        missing = objective.needs & {Need.WHOLE_GROUPS, Need.TOKEN_SHARES}
        assert not missing, f"a micro-batch does not carry {missing} yet"

    def host_batch(self, items: Sequence[Pair], tokens: int, pin: bool) -> HostBatch:
        laid = lay_families([(pair.chosen, pair.rejected) for pair in items], tokens)
        lengths_Q = np.array(
            [np.count_nonzero(labels[1:] != IGNORE) for pair in items for _, labels in (pair.chosen, pair.rejected)],
            np.int64,
        )
        reference_PC = np.stack([pair.reference_C for pair in items]) if items else np.zeros((0, 0))
        more: list[Index] = [lengths_Q, np.ascontiguousarray(reference_PC, np.float64).reshape(-1).view(np.int64)]
        if Need.TAILS in self.objective.needs:
            more.append(in_tail(laid.sequences_N, lengths_Q).astype(np.int64))
        own = laid.arrays
        arrays = [*own, *more]

        def unpack(buffer: Tensor) -> PairBatch:
            tensors = apart(buffer, arrays)
            lengths_Q, reference, *tails = tensors[len(own) :]
            return PairBatch(
                laid.of(tensors[: len(own)]),
                lengths_Q,
                tails[0] if tails else None,
                reference.view(torch.float64).reshape(reference_PC.shape),
            )

        return HostBatch(together(arrays, pin), unpack)

    def tokens_of(self, item: Pair) -> int:
        ids = [ids for ids, _ in (item.chosen, item.rejected)]
        return sum(map(len, ids)) - trunk_of(ids)

    def made_up(self, lengths: Sequence[int], vocabulary: int) -> list[Pair]:
        return [_made_up(n, vocabulary, self.objective) for n in lengths]

    def scores(self, batch: PairBatch) -> SequenceScores:
        """Log-probabilities of all answers, with gradient where it is wanted, and what the losses need beside them."""
        families = batch.families
        return sequence_scores(
            self.head,
            hidden_states(self.model, families),
            families.predictors_N,
            families.targets_N,
            families.sequences_N,
            families.sequences,
            tails_N=batch.tails_N,
            mean_logits=True,
            aligned_logps=Need.AGREEMENT in self.objective.needs,
        )

    def loss(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        scores = self.scores(batch)
        logps_Q = tails_Q = None
        if Need.REFERENCE in self.objective.needs:
            reference_PC = batch.reference_PC.to(scores.logps_Q.dtype)
            logps_Q = reference_PC[:, :2].reshape(-1)
            tails_Q = reference_PC[:, 2:].reshape(-1) if batch.tails_N is not None else None
        pairs = pairs_of(scores, batch.lengths_Q, logps_Q, tails_Q)
        return self.objective(pairs, predictions_of(scores))


def _made_up(tokens: int, vocabulary: int, objective: PreferenceObjective) -> Pair:
    """A pair of so many tokens, half of them a common prompt."""
    prompt = max(0, min(tokens // 2, tokens - 2))
    of_chosen = (tokens - prompt + 1) // 2
    sides = []
    for side, answer in enumerate((of_chosen, tokens - prompt - of_chosen)):
        ids = np.arange(prompt + answer, dtype=np.int32)
        ids[prompt:] += side  # answers differ from their first token on
        labels = ids % vocabulary
        labels[:prompt] = IGNORE
        sides.append((ids % vocabulary, labels))
    columns = 4 if Need.TAILS in objective.needs else 2
    return Pair(sides[0], sides[1], np.zeros(columns if Need.REFERENCE in objective.needs else 0))
