"""Where the documents of a pre-tokenised row begin, and which of its tokens are padding."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

LENGTHS = ("seq_lengths", "sequence_lengths", "seq_lens", "document_lengths", "lengths")
CUMULATIVE = ("cu_seqlens", "cu_seq_lens", "cu_seq_lens_q", "cu_seqlens_q", "cu_seq_lens_k", "cu_seqlens_k")
PER_TOKEN_IDS = ("document_ids", "doc_ids", "sequence_ids", "segment_ids", "seq_idx", "sequence_id", "document_id")

BOUNDARY_COLUMNS = (*LENGTHS, *CUMULATIVE, *PER_TOKEN_IDS)
"""Every column name that tells where documents begin, besides `position_ids` and a counting `attention_mask`."""


class Refused(Exception):  # noqa: N818  (becomes a BadRow)
    """A row that cannot be used, with its reason's name and a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def document_starts(
    ids_T: IntArray,
    columns: dict[str, Any],
    attention_mask_T: IntArray | None,
    position_ids_T: IntArray | None,
    notices: Counter[str],
) -> tuple[slice, list[int]]:
    """The tokens without padding, and the index among them of each document's first token (0 first).

    An `attention_mask` that counts 1, 2, 3, ... numbers the documents, as some packers write it. Everything that the
    row says must agree; raises `Refused` where it does not.
    """
    length = len(ids_T)
    kept = slice(0, length)
    said: dict[str, IntArray] = {}
    if attention_mask_T is not None:
        kept = _without_padding(attention_mask_T, notices)
        if attention_mask_T.max() > 1:
            said["attention_mask"] = _changes(attention_mask_T[kept])
    for name in PER_TOKEN_IDS:
        values = _column(columns, name)
        if values is not None:
            if len(values) != length:
                raise Refused("lengths-differ", f"`{name}` has {len(values):,} values for {length:,} `input_ids`")
            said[name] = _changes(values[kept])
    for name in (*LENGTHS, *CUMULATIVE):
        values = _column(columns, name)
        if values is not None:
            said[name] = _from_lengths(name, values, kept, length)
    if position_ids_T is not None:
        said["position_ids"] = _restarts(position_ids_T[kept], said, notices)
    for name, starts in said.items():
        first_name, first = next(iter(said.items()))
        if not np.array_equal(starts, first):
            raise Refused(
                "boundaries-disagree",
                f"`{first_name}` says that {len(first)} documents begin in this row, at {_some(first)};"
                f" `{name}` says {len(starts)}, at {_some(starts)}",
            )
    starts = next(iter(said.values()), np.zeros(1, np.int64))
    return kept, [int(start) for start in starts]


def _without_padding(mask_T: IntArray, notices: Counter[str]) -> slice:
    real = np.flatnonzero(mask_T)
    if not len(real):
        raise Refused("empty-row", "`attention_mask` is zero everywhere: the row is all padding")
    if (mask_T < 0).any():
        raise Refused("attention-mask-not-understood", "`attention_mask` has negative values; 1 is a token, 0 padding")
    start, end = int(real[0]), int(real[-1]) + 1
    if len(real) != end - start:
        hole = start + int((mask_T[start:end] == 0).argmax())
        raise Refused(
            "attention-mask-with-holes",
            f"`attention_mask[{hole}]` is 0 between tokens. Padding may stand at the ends only; to leave tokens out of"
            " the loss use `labels`",
        )
    if len(real) < len(mask_T):
        notices["padding-stripped"] += 1
    return slice(start, end)


def _changes(values_T: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(values_T)) + 1])


def _from_lengths(name: str, values: IntArray, kept: slice, length: int) -> IntArray:
    cumulative = name in CUMULATIVE
    if cumulative and (not len(values) or values[0] != 0):
        values = np.concatenate([np.zeros(1, np.int64), values])
    lengths = np.diff(values) if cumulative else values
    if (lengths < 0).any():
        raise Refused("boundaries-do-not-fit", f"`{name}` goes backwards: {_some(values)}")
    total = int(lengths.sum())
    if total not in (length, kept.stop - kept.start):
        raise Refused("boundaries-do-not-fit", f"`{name}` adds up to {total:,} tokens, and the row has {length:,}")
    starts = np.cumsum(lengths[lengths > 0])
    starts = np.concatenate([np.zeros(1, np.int64), starts[:-1]])
    if total == length:  # counted with the padding, which may have been a document of its own
        starts = np.unique(np.clip(starts, kept.start, kept.stop) - kept.start)
        starts = starts[starts < kept.stop - kept.start]
    return starts


def _restarts(positions_T: IntArray, said: dict[str, IntArray], notices: Counter[str]) -> IntArray:
    """Positions must count up by one and may only fall back to 0."""
    if (positions_T < 0).any():
        raise Refused("position-ids-not-understood", "`position_ids` has negative values")
    steps = np.diff(positions_T)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(positions_T[1:] == 0) + 1])
    jumps = (steps != 1) & (positions_T[1:] != 0)
    # documents whose start was cut off begin above 0; something else must then tell where
    jumps[[int(s) - 1 for other in said.values() for s in other if s > 0]] = False
    if jumps.any():
        at = int(jumps.argmax())
        raise Refused(
            "position-ids-jump",
            f"`position_ids` goes from {positions_T[at]} to {positions_T[at + 1]} at token {at + 1}; it must count up"
            " by one and start again at 0 with each document (Dynotune numbers a document's tokens itself)",
        )
    if said:
        first = next(iter(said.values()))
        if (positions_T[first] > 0).any():
            notices["position-ids-offset"] += 1
            return first if set(starts) <= set(first) else starts
    elif positions_T[0] > 0:
        notices["position-ids-offset"] += 1
    return starts


def _column(columns: dict[str, Any], name: str) -> IntArray | None:
    values = columns.get(name)
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or (len(array) and not np.issubdtype(array.dtype, np.integer)):
        raise Refused("boundaries-do-not-fit", f"`{name}` is no flat list of integers")
    return array.astype(np.int64)


def _some(values: IntArray) -> str:
    return ", ".join(str(v) for v in values[:5]) + (", ..." if len(values) > 5 else "")
