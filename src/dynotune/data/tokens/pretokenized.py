"""Rows that come as token ids: loaded without tokenising, packed or not.

A packed row holds several documents. Dynotune isolates documents, so such a row is split where it says that a document
begins: `position_ids` that restart, `seq_lengths`, cumulative lengths, or an id per token. **Each document becomes an
example of its own**, counted under `packed-row-split`, because the plain path runs one document at a time. Two things
follow. A step holds `per_device_train_batch_size` documents where the file's maker meant that many packed rows:
multiply the batch size by the documents a row (the ledger has both numbers) to keep the content of a step. And
`max_length` cuts each document, not the row.

A row that looks packed and does not say where its documents begin cannot be split: they see each other, as they would
in TRL. That is counted under `packed-without-boundaries`.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Row
from dynotune.data.tokens.boundaries import Refused, document_starts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IntArray = NDArray[np.int64]

PER_TOKEN = ("labels", "attention_mask", "position_ids", "completion_mask", "assistant_masks")


@dataclass
class TokenRows:
    """Encodes rows of kind `tokens`."""

    tokenizer: "PreTrainedTokenizerBase"
    config: DataConfig

    @cached_property
    def _vocabulary(self) -> int:
        return max(self.tokenizer.get_vocab().values()) + 1  # a tenth of a second, which only rows of ids need

    def encode(self, row: Row, notices: Counter[str]) -> Example | list[Example] | BadRow:
        """One example, the list of a packed row's documents, or the reason why the row cannot be used.

        `notices` counts what was remarkable. `attention_mask` only strips padding: interior zeros are refused.
        """
        assert row.tokens is not None
        found: Counter[str] = Counter()
        try:
            examples = self._documents(row, row.tokens, found)
        except Refused as refusal:
            return BadRow(row.place, refusal.reason, refusal.detail)
        notices.update(found)
        return examples[0] if len(examples) == 1 else examples

    def _documents(self, row: Row, columns: dict[str, Any], notices: Counter[str]) -> list[Example]:
        ids_T = _integers(columns, "input_ids")
        if ids_T is None or not len(ids_T):
            raise Refused("empty-row", "`input_ids` is empty")
        per_token = {name: _integers(columns, name) for name in PER_TOKEN}
        for name, values in per_token.items():
            if values is not None and len(values) != len(ids_T):
                raise Refused("lengths-differ", f"`{name}` has {len(values):,} values for {len(ids_T):,} `input_ids`")
        self._check_ids("input_ids", ids_T)
        labels_T = self._labels(ids_T, per_token, notices)
        kept, starts = document_starts(ids_T, columns, per_token["attention_mask"], per_token["position_ids"], notices)
        ids_T, labels_T = ids_T[kept], labels_T[kept]
        self._notice_leaks(ids_T, labels_T, starts, notices)
        ends = [*starts[1:], len(ids_T)]
        examples = [
            Example(ids_T[a:b].astype(np.int32), labels_T[a:b].astype(np.int32), row.place)
            for a, b in zip(starts, ends, strict=True)
            if (labels_T[a + 1 : b] != IGNORE).any()
        ]
        if not examples:
            raise Refused("no-labels", "no token of it carries loss (a label at a document's first token does not)")
        if len(starts) > 1:
            notices["packed-row-split"] += 1
        if len(examples) < len(starts):
            notices["document-without-labels"] += len(starts) - len(examples)
        return examples

    def _check_ids(self, name: str, values: IntArray) -> None:
        wrong = (values < 0) | (values >= self._vocabulary)
        if wrong.any():
            at = int(wrong.argmax())
            raise Refused(
                "id-out-of-vocabulary",
                f"`{name}[{at}]` is {values[at]}, and the tokenizer's ids go from 0 to {self._vocabulary - 1}."
                " Was the row made with another tokenizer?",
            )

    def _labels(self, ids_T: IntArray, per_token: dict[str, IntArray | None], notices: Counter[str]) -> IntArray:
        labels_T = per_token["labels"]
        if labels_T is None:
            return self._labels_from_masks(ids_T, per_token, notices)
        trained = labels_T != IGNORE
        if not trained.any():
            raise Refused("no-labels", f"every label is {IGNORE}")
        invalid = trained & ((labels_T < 0) | (labels_T >= self._vocabulary))
        if invalid.any():
            at = int(invalid.argmax())
            raise Refused(
                "label-out-of-vocabulary", f"`labels[{at}]` is {labels_T[at]}: neither {IGNORE} nor a token id"
            )
        if (labels_T[trained] == ids_T[trained]).all():
            return labels_T
        shifted = trained[:-1]
        if not trained[-1] and (labels_T[:-1][shifted] == ids_T[1:][shifted]).all():
            raise Refused(
                "labels-shifted",
                "`labels` are already shifted by one; transformers, TRL and Dynotune shift them in the loss, so every"
                " token would learn to predict the one after the next. Give labels that are equal to `input_ids`",
            )
        notices["labels-differ-from-ids"] += 1
        return labels_T

    def _labels_from_masks(
        self, ids_T: IntArray, per_token: dict[str, IntArray | None], notices: Counter[str]
    ) -> IntArray:
        """As TRL: `assistant_masks` always holds, `completion_mask` only with `completion_only_loss: true`."""
        labels_T = ids_T.copy()
        assistant, completion = per_token["assistant_masks"], per_token["completion_mask"]
        if assistant is not None:
            labels_T[assistant == 0] = IGNORE
        if completion is not None and self.config.completion_only_loss:
            labels_T[completion == 0] = IGNORE
        elif completion is not None:
            notices["completion-mask-not-applied"] += 1
        return labels_T

    def _notice_leaks(self, ids_T: IntArray, labels_T: IntArray, starts: list[int], notices: Counter[str]) -> None:
        eos, bos, pad = self.tokenizer.eos_token_id, self.tokenizer.bos_token_id, self.tokenizer.pad_token_id
        if any(labels_T[start] != IGNORE for start in starts[1:]):
            notices["label-crosses-boundary"] += 1  # predicted from another document's last token; dropped by the split
        if pad is not None and pad != eos and ids_T[-1] == pad:
            notices["padding-without-attention-mask"] += 1
        if len(starts) == 1 and len(ids_T) > 2 and self._looks_packed(ids_T, bos, eos):
            notices["packed-without-boundaries"] += 1

    def _looks_packed(self, ids_T: IntArray, bos: int | None, eos: int | None) -> bool:
        """A BOS inside, or an end token after which the row begins anew.

        Chat templates end every turn with a token that may be the tokenizer's end token. So where there is a template,
        an end token inside only counts if the token after it is the row's first.
        """
        if bos is not None and bos != eos and (ids_T[1:] == bos).any() and ids_T[1] != bos:
            return True
        after = ids_T[1:][ids_T[:-1] == eos] if eos is not None else ids_T[:0]
        after = after[after != eos]
        if self.tokenizer.chat_template:
            after = after[after == ids_T[0]]
        return bool(len(after))


def _integers(columns: dict[str, Any], name: str) -> IntArray | None:
    """A column as int64 [T]; None where it is absent. Booleans are accepted for masks."""
    values = columns.get(name)
    if values is None:
        return None
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise Refused("not-token-ids", f"`{name}` is no flat list of integers") from None
    if array.ndim == 1 and not len(array):
        return np.zeros(0, np.int64)
    if array.dtype == np.bool_ and name.endswith(("mask", "masks")):
        array = array.astype(np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise Refused("not-token-ids", f"`{name}` is no flat list of integers but {_described(array)}")
    return array.astype(np.int64)


def _described(array: NDArray[Any]) -> str:
    if array.ndim > 1:
        return f"nested {array.ndim} deep"
    return {"f": "decimal numbers", "b": "booleans", "U": "text"}.get(array.dtype.kind, "a mixture of values")
