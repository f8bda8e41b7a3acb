"""What a call of the model was given: tokens, padding, labels, documents. Nothing is read from the device until the step is
over: sums stay there as tensors of one value.

Legend of shapes: B rows, S columns of a padded batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
"""The label of a token without loss, in PyTorch and everywhere above it."""


@dataclass(slots=True)
class Batch:
    """One call. Counts that are still on the device wait in `late`."""

    processed: int | None = None
    """Tokens, padding included; None where no tensor of token ids was given."""

    rows: int = 0
    shape: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    """Names of the arguments that are tensors."""

    late: dict[str, Tensor] = field(default_factory=dict)
    """`real`, `labels`: counts. `lengths_B`: tokens of each row. `positions`: position ids, anew with each document."""

    known_by: str = ""
    """How padding was told: `mask`, `positions` (nothing is padded), `pad token`; empty where it cannot be told."""

    def read(self) -> dict[str, Any]:
        """The counts, as integers. The host waits for the device here."""
        found: dict[str, Any] = {"processed": self.processed, "known_by": self.known_by, "shape": list(self.shape)}
        for name in ("real", "labels"):
            if name in self.late:
                found[name] = int(self.late[name])
        if self.known_by == "positions":
            found["real"] = self.processed
        found["lengths"] = list(self._lengths(found.get("real")))
        return found

    def _lengths(self, real: int | None) -> Iterator[int]:
        """Of each document (attention-isolated span)."""
        if "positions" in self.late:
            flat = self.late["positions"].reshape(-1)
            starts = [*(flat == 0).nonzero().flatten().tolist(), flat.numel()]
            yield from (end - start for start, end in pairwise(starts))
        elif "lengths_B" in self.late:
            yield from (int(one) for one in self.late["lengths_B"].tolist())
        elif self.processed is not None and self.rows:
            yield from [self.processed // self.rows] * self.rows


def batch_of(args: Iterable[Any], kwargs: Mapping[str, Any], pad: int | None, *, lengths: bool) -> Batch:
    """pad: the padding token of the model's configuration. lengths: whether those of documents are wanted, too."""
    given = dict(_tensors(args, kwargs))
    batch = Batch(keys=tuple(given))
    ids = given.get("input_ids")
    if ids is None:
        ids = next((one for one in given.values() if _are_ids(one)), None)
    if ids is None:
        first = next(iter(given.values()), None)
        batch.shape = tuple(first.shape) if first is not None else ()
        batch.rows = batch.shape[0] if batch.shape else 0
        return batch
    batch.shape, batch.processed = tuple(ids.shape), ids.numel()
    batch.rows = ids.shape[0] if ids.dim() > 1 else 1
    with torch.no_grad():
        _padding(batch, given, ids, pad, lengths)
        labels = given.get("labels")
        if labels is not None and not labels.is_floating_point():
            shifted = labels[..., 1:] if labels.dim() > 1 else labels
            batch.late["labels"] = (shifted != IGNORED).sum()
    return batch


def _padding(batch: Batch, given: Mapping[str, Tensor], ids: Tensor, pad: int | None, lengths: bool) -> None:
    mask, positions = given.get("attention_mask"), given.get("position_ids")
    if mask is not None and mask.shape == ids.shape:
        lengths_B = mask.reshape(batch.rows, -1).ne(0).sum(-1)
        batch.late["real"], batch.known_by = lengths_B.sum(), "mask"
        if lengths:
            batch.late["lengths_B"] = lengths_B
    elif mask is None and positions is not None and positions.shape == ids.shape:
        batch.known_by = "positions"
        if lengths:
            batch.late["positions"] = positions.clone()
    elif mask is None and pad is not None and ids.dim() == 2:
        # Without a mask only what stands behind the last other token can be told to be padding.
        lengths_B = ids.ne(pad).flip(-1).cumsum(-1).ne(0).sum(-1)
        batch.late["real"], batch.known_by = lengths_B.sum(), "pad token"
        if lengths:
            batch.late["lengths_B"] = lengths_B


def _tensors(args: Iterable[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """By name; those of positional arguments by number, and by name where the argument is a mapping."""
    for i, one in enumerate(args):
        if isinstance(one, Tensor):
            yield str(i), one
        elif isinstance(one, Mapping):
            yield from _tensors((), one)
    yield from ((str(name), one) for name, one in kwargs.items() if isinstance(one, Tensor))


def _are_ids(one: Tensor) -> bool:
    return one.dtype in (torch.int64, torch.int32) and one.dim() in (1, 2) and one.numel() > 1
