"""Documents that begin alike, laid out with their common beginning once: the two answers of a pair behind one prompt.

A family is [trunk | branch 0 | branch 1 | ...]. Its trunk is the longest beginning that all of its documents have in
common, but leaves each of them a token of its own. Queries: segment 0 is trunk and branch 0, segment b is branch b. Keys and
values are gathered as [trunk, branch 0 | trunk, branch 1 | ...], so that one causal call whose last query sees the last key
(bottom-right alignment) shows each document exactly itself. Positions of every branch go on where the trunk ends.

A branch may branch again: what a document begins with may be of any document before it, wherever that lies. So the pairs of
one prompt are [prompt | chosen | rejected | chosen | rejected], and two answers that begin alike share that, too.

Prefix sharing for preference pairs: arXiv 2410.20305, there with a mask in one sequence; the gathered form needs none.

Legend of shapes: T tokens of the micro-batch, padding included; K rows of keys; S segments: the documents and, where there
is padding, one more that holds it; N label tokens; F families; B documents of a family; n tokens of a document.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.model.one_copy import Index, apart, together
from dynotune.model.packed import Document

Family = Sequence[Document]
"""One or more documents of at least a token each, a common beginning or not."""

Beginning = tuple[int, int]
"""What a document begins with: the number of a document before it, and how many of that one's tokens; with 0 of nothing."""


@dataclass(frozen=True, slots=True)
class FamilyBatch:
    """What the packed forward pass and `sequence_scores` need. The documents, in the order given, are the sequences.

    No `PackedBatch`: a head whose gradient takes each predictor for a row of its own would lose some here.
    """

    ids_T: Tensor
    """int64. Padding holds token 0."""

    positions_T: Tensor
    """int64. Of a branch they begin with the length of its trunk; 0 throughout the padding."""

    boundaries_S1: Tensor
    """int32 [S + 1]: segment s holds queries boundaries[s] to boundaries[s + 1]; first 0, last T."""

    predictors_N: Tensor
    """int64. Tokens whose hidden state predicts a label, by sequence, then by position. They may repeat: the last token of a
    trunk predicts the first of every branch, and a label token inside of a trunk counts for each document that labels it.
    So the token behind a predictor need not be its target."""

    targets_N: Tensor
    """int64. The label tokens, aligned with `predictors_N`."""

    key_rows_K: Tensor
    """int64. Which of the T tokens each key and value is of."""

    key_boundaries_S1: Tensor
    """int32 [S + 1]: segment s sees keys key_boundaries[s] to key_boundaries[s + 1]; first 0, last K."""

    sequences_N: Tensor
    """int64. The sequence that each label token belongs to."""

    lengths: tuple[int, ...]
    """Tokens of each segment, on the host: S of them."""

    key_lengths: tuple[int, ...]
    """Keys of each segment, on the host: S of them, none below its `lengths`."""

    sequences: int
    """How many of the segments are sequences, which `sequences_N` counts from 0."""


@dataclass(frozen=True, slots=True)
class FamiliesSideBySide:
    """Families laid out on the host. Arrays as in `FamilyBatch`."""

    ids_T: NDArray[np.int64]
    positions_T: NDArray[np.int64]
    boundaries_S1: NDArray[np.int32]
    predictors_N: NDArray[np.int64]
    targets_N: NDArray[np.int64]
    key_rows_K: NDArray[np.int64]
    key_boundaries_S1: NDArray[np.int32]
    sequences_N: NDArray[np.int64]
    lengths: tuple[int, ...]
    key_lengths: tuple[int, ...]
    sequences: int

    def buffer(self, pin: bool) -> Tensor:
        """Everything in one int64 tensor, pinned where asked, so that it travels in one copy."""
        return together(self.arrays, pin)

    def unpack(self, buffer: Tensor) -> FamilyBatch:
        """`buffer`, wherever it is by now, as the tensors that it holds: views, so that nothing is launched."""
        return self.of(apart(buffer, self.arrays))

    def of(self, tensors: Sequence[Tensor]) -> FamilyBatch:
        """`tensors` like `arrays`, as a batch."""
        ids_T, positions_T, ends_S1, predictors_N, targets_N, key_rows_K, key_ends_S1, sequences_N = tensors
        return FamilyBatch(
            ids_T,
            positions_T,
            ends_S1,
            predictors_N,
            targets_N,
            key_rows_K,
            key_ends_S1,
            sequences_N,
            self.lengths,
            self.key_lengths,
            self.sequences,
        )

    @property
    def arrays(self) -> list[Index]:
        """What travels, in the order of `FamilyBatch`."""
        labels: list[Index] = [self.predictors_N, self.targets_N]
        keys: list[Index] = [self.key_rows_K, self.key_boundaries_S1, self.sequences_N]
        return [self.ids_T, self.positions_T, self.boundaries_S1, *labels, *keys]


def trunk_of(documents: Sequence[NDArray[np.int32]]) -> int:
    """Tokens that documents of these ids share: none where there is one, and never the whole of a document."""
    if len(documents) == 1:
        return 0
    most = min(map(len, documents)) - 1
    first_n = documents[0][:most]
    alike_n = np.ones(most, np.bool_)
    for ids_n in documents[1:]:
        alike_n &= ids_n[:most] == first_n
    return most if alike_n.all() else int(alike_n.argmin())


def lay_families(families: Sequence[Family], tokens: int, keys: int | None = None) -> FamiliesSideBySide:
    """Lay `families` out in `tokens` tokens, the rest of which is padding, with `keys` rows of keys.

    keys: as of `lay_branches`.
    """
    documents: list[Document] = []
    beginnings: list[Beginning] = []
    for family in families:
        first, trunk = len(documents), trunk_of([ids_n for ids_n, _ in family])
        beginnings += [(first, trunk if branch else 0) for branch in range(len(family))]
        documents += family
    return lay_branches(documents, beginnings, tokens, keys)


def lay_branches(
    documents: Sequence[Document], beginnings: Sequence[Beginning], tokens: int, keys: int | None = None
) -> FamiliesSideBySide:
    """Lay `documents` out in `tokens` tokens, the rest of which is padding, with `keys` rows of keys; of each document only
    what stands behind its beginning.

    beginnings: of each document, which keeps at least a token of its own; the two have the same tokens there.
    keys: at least the tokens of all documents and the padding. More of them stand in the padding's segment, so there must be
    padding then. Default: what is needed, rounded up by `static_keys` where there is padding.
    """
    ids_T, positions_T = np.zeros(tokens, np.int64), np.zeros(tokens, np.int64)
    lengths: list[int] = []
    rows: list[NDArray[np.int64]] = []  # of each segment: which tokens its keys are of, for a document all of its own
    labelled: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    end = 0
    for (ids_n, labels_n), (of, begun) in zip(documents, beginnings, strict=True):
        n = len(ids_n)
        own = n - begun
        assert own > 0, "a document without tokens"
        assert end + own <= tokens, (end + own, tokens)
        before = rows[of][:begun] if begun else np.zeros(0, np.int64)
        rows_n = np.concatenate([before, np.arange(end, end + own)])
        assert len(rows_n) == n, "a document cannot begin with more than there is of another"
        ids_T[end : end + own] = ids_n[begun:]
        positions_T[end : end + own] = np.arange(begun, n)
        at_N = np.flatnonzero(labels_n[1:] != IGNORE)  # nothing precedes a document's first token
        labelled.append(rows_n[at_N])
        targets.append(labels_n[at_N + 1])
        lengths.append(own)
        rows.append(rows_n)
        end += own
    sequences, padding = len(lengths), tokens - end
    needed = sum(map(len, rows)) + padding
    if keys is None:
        keys = static_keys(needed, tokens) if padding else needed
    assert keys >= needed and (padding or keys == needed), (keys, needed, padding)  # noqa: PT018  one promise
    if padding:
        # A key that no query sees would leave a kernel's gradient for it unwritten. These the first padding token sees.
        rows.append(np.concatenate([np.full(keys - needed, end), np.arange(end, tokens)]))
        lengths.append(padding)
    key_lengths = [len(rows_n) for rows_n in rows]
    none = np.zeros(0, np.int64)
    return FamiliesSideBySide(
        ids_T=ids_T,
        positions_T=positions_T,
        predictors_N=np.concatenate([none, *labelled]),
        targets_N=np.concatenate([none, *targets]),
        boundaries_S1=np.append(0, np.cumsum(lengths)).astype(np.int32),
        key_rows_K=np.concatenate([none, *rows]),
        key_boundaries_S1=np.append(0, np.cumsum(key_lengths)).astype(np.int32),
        sequences_N=np.repeat(np.arange(sequences), [len(at_N) for at_N in labelled]),
        lengths=tuple(lengths),
        key_lengths=tuple(key_lengths),
        sequences=sequences,
    )


def pack_families(
    families: Sequence[Family], tokens: int, device: torch.device, keys: int | None = None
) -> FamilyBatch:
    """`families` laid out in `tokens` tokens as by `lay_families`, on the device."""
    laid = lay_families(families, tokens, keys)
    return laid.unpack(laid.buffer(pin=False).to(device))


def static_keys(needed: int, tokens: int) -> int:
    """Rows of keys in few counts, so that compiled code sees few shapes: `needed` in steps of an eighth of `tokens`.

    A row more costs the gather of one key and value a layer.
    """
    step = max(64, (1 << (tokens - 1).bit_length()) // 8)
    return tokens + -(-(needed - tokens) // step) * step


def tokens_of(trunk_F: NDArray[np.int64], lengths_FB: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens [F] that families take in a micro-batch. lengths_FB: of their documents, trunk included; 0: there is none."""
    branches_FB = np.where(lengths_FB > 0, lengths_FB - trunk_F[:, None], 0)
    return np.asarray(trunk_F + branches_FB.sum(axis=1), np.int64)


def keys_of(lengths_FB: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of keys [F] of families: every document has all of its own. Padding has as many as tokens."""
    return np.asarray(lengths_FB.sum(axis=1), np.int64)


def squares_of(trunk_F: NDArray[np.int64], lengths_FB: NDArray[np.int64]) -> NDArray[np.int64]:
    """What stands for the sum of n^2 over documents [F] in the FLOPs of attention: a trunk's products are computed once.

    q queries that are the last of k keys form k^2 - (k - q)^2, which for q = k is n^2.
    """
    squares_FB = np.where(lengths_FB > 0, lengths_FB**2 - trunk_F[:, None] ** 2, 0)
    return np.asarray(trunk_F**2 + squares_FB.sum(axis=1), np.int64)
