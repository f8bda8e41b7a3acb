"""From the plan's row indices to tensors on the device: one copy a step, cut into documents there."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from dynotune.data.examples import Examples
from dynotune.plan.plan import Step
from dynotune.plan.truncation import Spans


class Documents:
    """Hands out documents as `(ids_T, labels_T)` int64 tensors on the device."""

    def __init__(self, examples: Examples, spans: Spans, device: torch.device) -> None:
        self.examples, self.spans, self.device = examples, spans, device

    def of(self, step: Step) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """The step's micro-batches as the plan laid them out: the documents of each."""
        documents = self.of_rows(np.concatenate([micro_batch.rows for micro_batch in step.micro_batches]))
        for micro_batch in step.micro_batches:
            yield list(islice(documents, len(micro_batch.rows)))

    def of_rows(self, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """The documents at these row indices, in order."""
        start, end = self.spans.start[rows], self.spans.end[rows]
        lengths = (end - start).tolist()
        host = torch.empty((2, int(sum(lengths))), dtype=torch.int32, pin_memory=self.device.type == "cuda")
        at = 0
        for first, last, length in zip(start, end, lengths, strict=True):
            host[0, at : at + length] = torch.from_numpy(self.examples.ids[first:last])
            host[1, at : at + length] = torch.from_numpy(self.examples.labels[first:last])
            at += length
        # One copy for the whole step, and the wider type made on the device, where bandwidth is.
        ids, labels = host.to(self.device, non_blocking=True).long()
        yield from zip(ids.split(lengths), labels.split(lengths), strict=True)
