"""The packed path of preference pairs: what both sides of a pair begin with stands once in a micro-batch, where it can, and
so does a prompt that several pairs have.

Legend of shapes: T tokens of the micro-batch, D hidden, P pairs, Q = 2 P sequences (2p chosen, 2p + 1 rejected), N label
tokens, C values of the reference for a pair: chosen, rejected, and where tails are kept the tail of either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.data.pairs import Pairs
from dynotune.execution.beginnings import beginnings_of
from dynotune.execution.in_step import ReferenceInStep
from dynotune.execution.path import Document, HostBatch
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.aside import Aside
from dynotune.model.attention import hidden_states
from dynotune.model.families import FamiliesSideBySide, FamilyBatch, lay_branches, trunk_of
from dynotune.model.head.plain_sequences import plain_sequence_scores
from dynotune.model.head.sequences import SequenceScores, sequence_scores
from dynotune.model.one_copy import Index, apart, together
from dynotune.model.packed import PackedBatch, SideBySide, lay_side_by_side
from dynotune.objectives.preference.from_scores import pairs_of, predictions_of
from dynotune.objectives.preference.groups import in_tail, token_shares
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need
from dynotune.plan.layout import MicroBatch
from dynotune.plan.pairs import PairSpans

if TYPE_CHECKING:
    from dynotune.speedups.site import Site


class Pair(NamedTuple):
    """One pair on the host."""

    chosen: Document
    rejected: Document
    reference_C: NDArray[np.float64]
    """Nats; empty where the objective needs no reference, or none is known yet."""

    group: int
    """Number of its group in the step."""

    token_share: float
    """Pairs over chosen label tokens, both of its group (`objectives.preference.groups.token_shares`)."""


class PairItems:
    """The pairs of a data set, as far as they are used, with their reference."""

    def __init__(self, pairs: Pairs, spans: PairSpans, reference_PC: NDArray[np.float64] | None = None) -> None:
        self.pairs, self.spans = pairs, spans
        self.reference_PC = np.zeros((len(pairs), 0)) if reference_PC is None else reference_PC
        self.reference: str | None = None

    def at(self, rows: NDArray[np.int64]) -> list[Pair]:
        """The pairs of these numbers, as views of the flat arrays, as though they were a step."""
        return self.of(MicroBatch(rows, 0))

    def of(self, batch: MicroBatch) -> list[Pair]:
        """The pairs of a micro-batch, whose rows keep the order of its step."""
        step = batch.rows if batch.step_rows is None else batch.step_rows
        size = self.spans.groups.size
        places = np.flatnonzero(np.isin(step, batch.rows))
        if self.spans.groups.whole:
            there, of = np.unique(places // size, return_counts=True)
            assert (of == np.minimum(size, len(step) - there * size)).all(), "a group stands in two micro-batches"
        shares = token_shares(self.spans.side_labels[step, 0], size)[places].tolist()
        found = []
        for row, place, share in zip(batch.rows.tolist(), places.tolist(), shares, strict=True):
            chosen, rejected = ((side.ids_T, side.labels_T) for side in self.pairs[row])
            found.append(Pair(chosen, rejected, self.reference_PC[row], place // size, share))
        return found

    def prompted(self, row: int) -> Document:
        """The chosen side."""
        return self.at(np.array([row]))[0].chosen


@dataclass(frozen=True, slots=True)
class PairValues:
    """What stands beside the tokens of a micro-batch of pairs, on the device."""

    sequences_N: Tensor
    """int64. The sequence of each label token."""

    lengths_Q: Tensor
    """int64. Label tokens of each sequence."""

    tails_N: Tensor | None
    """int64. 1 for label tokens behind the length of the pair's shorter answer, where the objective asks for them."""

    reference_PC: Tensor
    """float64."""

    token_shares_P: Tensor
    """float64."""

    groups: tuple[int, ...]
    """Pairs in each group, on the host."""

    @property
    def sequences(self) -> int:
        return len(self.lengths_Q)

    def loss_of(self, scores: SequenceScores, objective: PreferenceObjective) -> tuple[Tensor, Tensor]:
        """The summed loss [] of the policy's `scores` and the objective's detached sums."""
        logps_Q = tails_Q = None
        if Need.REFERENCE in objective.needs:
            reference_PC = self.reference_PC.to(scores.logps_Q.dtype)
            logps_Q = reference_PC[:, :2].reshape(-1)
            tails_Q = reference_PC[:, 2:].reshape(-1) if self.tails_N is not None else None
        shares_P = self.token_shares_P.to(scores.logps_Q.dtype)
        pairs = pairs_of(scores, self.lengths_Q, logps_Q, tails_Q, groups=self.groups, token_shares_P=shares_P)
        return objective(pairs, predictions_of(scores))


class HostValues:
    """The same on the host, for the buffer of a micro-batch."""

    def __init__(self, items: Sequence[Pair], objective: PreferenceObjective) -> None:
        lengths_Q = np.array([np.count_nonzero(labels[1:] != IGNORE) for _, labels in sides_of(items)], np.int64)
        sequences_N = np.repeat(np.arange(len(lengths_Q)), lengths_Q)
        reference_PC = np.stack([pair.reference_C for pair in items]) if items else np.zeros((0, 0))
        self._columns = reference_PC.shape[1]
        self._groups = tuple(len(list(pairs)) for _, pairs in groupby(items, key=lambda pair: pair.group))
        words = _words(reference_PC), _words(np.array([pair.token_share for pair in items], np.float64))
        self.arrays: list[Index] = [sequences_N, lengths_Q, *words]
        if Need.TAILS in objective.needs:
            self.arrays.append(in_tail(sequences_N, lengths_Q).astype(np.int64))

    def of(self, tensors: Sequence[Tensor]) -> PairValues:
        """`tensors` like `arrays`, as values."""
        sequences_N, lengths_Q, reference, shares, *tails = tensors
        reference_PC = reference.view(torch.float64).reshape(len(lengths_Q) // 2, self._columns)
        tails_N = tails[0] if tails else None
        return PairValues(sequences_N, lengths_Q, tails_N, reference_PC, shares.view(torch.float64), self._groups)


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Pairs on the device."""

    laid: FamilyBatch | PackedBatch
    """A family of each pair; documents, two for each pair, where beginnings are not shared."""

    values: PairValues


class PairsPath(SideBySidePath):
    """Micro-batches of whole pairs: one forward pass through the layers, the log-probability of each answer, the losses."""

    def __init__(
        self,
        site: "Site",
        objective: PreferenceObjective,
        asides: Mapping[str, Aside] | None = None,
        in_step: ReferenceInStep | None = None,
    ) -> None:
        super().__init__(site, asides)
        self.objective, self.in_step = objective, in_step or ReferenceInStep()
        self.shared = site.shared_beginnings
        """Whether what both sides begin with stands once."""

    def host_batch(self, items: Sequence[Pair], tokens: int, pin: bool) -> HostBatch:
        if self.shared:
            laid: FamiliesSideBySide | SideBySide = lay_branches(sides_of(items), beginnings_of(items), tokens)
        else:
            laid = lay_side_by_side(sides_of(items), tokens)
        values = HostValues(items, self.objective)
        first = len(laid.arrays)
        arrays = [*laid.arrays, *values.arrays]

        def unpack(buffer: Tensor) -> PairBatch:
            tensors = apart(buffer, arrays)
            return PairBatch(laid.of(tensors[:first]), values.of(tensors[first:]))

        return HostBatch(together(arrays, pin), unpack)

    def tokens_of(self, item: Pair) -> int:
        ids = [ids for ids, _ in sides_of([item])]
        return sum(map(len, ids)) - (trunk_of(ids) if self.shared else 0)

    def units(self, units: PairSpans) -> PairSpans:
        return units if self.shared else units.apart()

    def made_up(self, units: PairSpans, rows: NDArray[np.int64], vocabulary: int) -> list[Pair]:
        needs = self.objective.needs
        columns = (4 if Need.TAILS in needs else 2) if Need.REFERENCE in needs else 0
        sides, shared, size = units.side_lengths[rows].tolist(), units.shared_tokens[rows].tolist(), units.groups.size
        return [_made_up(sides[i], shared[i], vocabulary, columns, i, i // size) for i in range(len(rows))]

    def scores(self, batch: PairBatch, *, logps_only: bool = False) -> SequenceScores:
        """Log-probabilities of all answers, with gradient where it is wanted, and what the losses need beside them."""
        laid, values = batch.laid, batch.values
        hidden_TD = hidden_states(self.model, laid)
        if self.site.labelled_rows:
            return self._scored(hidden_TD, laid.predictors_N, batch, logps_only)
        logits_NV = self.head.few_logits(hidden_TD).index_select(0, laid.predictors_N)
        return plain_sequence_scores(
            logits_NV, laid.targets_N, values.sequences_N, values.sequences, tails_N=values.tails_N
        )

    def loss(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        return self.in_step.values(self.scores, batch).loss_of(self.scores(batch), self.objective)

    def loss_one_by_one(self, batch: PairBatch) -> Tensor:
        values = self.in_step.values(self._scores_one_by_one, batch)
        return values.loss_of(self._scores_one_by_one(batch), self.objective)[0]

    def _scores_one_by_one(self, batch: PairBatch, *, logps_only: bool = False) -> SequenceScores:
        laid, values = batch.laid, batch.values
        rows_N, ids_S = laid.predictors_N, laid.ids_T.split(list(laid.lengths))
        if isinstance(laid, FamilyBatch):  # a sequence's keys are its tokens
            ids_S = laid.ids_T[laid.key_rows_K].split(list(laid.key_lengths))
            rows_N = laid.key_boundaries_S1[values.sequences_N] + laid.positions_T[rows_N]
        return self._scored(self._hidden_one_by_one(ids_S), rows_N, batch, logps_only)

    def _scored(
        self, hidden_TD: Tensor, predictors_N: Tensor, batch: PairBatch, logps_only: bool = False
    ) -> SequenceScores:
        return sequence_scores(
            self.head,
            hidden_TD,
            predictors_N,
            batch.laid.targets_N,
            batch.values.sequences_N,
            batch.values.sequences,
            tails_N=batch.values.tails_N,
            mean_logits=not logps_only,
            aligned_logps=not logps_only and Need.AGREEMENT in self.objective.needs,
        )


def sides_of(items: Sequence[Pair]) -> list[Document]:
    """The documents of these pairs in the order of their sequences."""
    return [side for pair in items for side in (pair.chosen, pair.rejected)]


def _made_up(sides: Sequence[int], shared: int, vocabulary: int, columns: int, first: int, group: int) -> Pair:
    """A pair of so many tokens a side, `shared` of them the same, with a label on all others. first: of its tokens, so that
    pairs have no prompt in common."""
    made = []
    for side, n in enumerate(sides):
        ids = first + np.arange(n, dtype=np.int32)
        ids[shared:] += side  # sides differ in their first token behind what they share
        labels = ids % vocabulary
        labels[:shared] = IGNORE
        made.append((ids % vocabulary, labels))
    share = 1 / max(1, int(np.count_nonzero(made[0][1][1:] != IGNORE)))
    return Pair(made[0], made[1], np.zeros(columns), group, share)


def _words(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The same bits, to travel with the rest of a micro-batch."""
    return np.ascontiguousarray(values).reshape(-1).view(np.int64)
