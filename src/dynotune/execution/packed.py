"""The packed path: whole documents side by side in a static token count, isolated from each other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.execution.path import Document, HostBatch
from dynotune.model.aside import Aside
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.head import Head
from dynotune.model.packed import PackedBatch, lay_side_by_side
from dynotune.objectives.sft import Objective

if TYPE_CHECKING:
    from dynotune.speedups.contract import Site


class PackedPath:
    """Micro-batches as `PackedBatch`: one forward pass through the layers, then the head."""

    def __init__(self, site: "Site", objective: Objective, asides: Mapping[str, Aside] | None = None) -> None:
        """Call `close` when the run is over.

        site: says, at each micro-batch, what runs: which attention, whether the head sees label tokens only.
        asides: by name of a speed-up, the count of calls that it left to the modules it stands in for.
        """
        assert site.head is not None
        self.site, self.objective = site, objective
        self.model = site.model
        self.asides = asides or {}
        self.left = Counter[str]()
        """What kernels left to the modules in packed execution itself, not where generation or callbacks call the model."""

        self._attention = packed_attention(self.model)
        self._attention.disengage()  # from here on only inside `engaged`

    @property
    def head(self) -> Head:
        """The one that runs at present."""
        assert self.site.head is not None
        return self.site.head

    @property
    def labelled_rows_head(self) -> bool:
        """Whether the LM head sees label tokens only: what its FLOPs are counted for."""
        return self.site.labelled_rows

    def close(self) -> None:
        """The model as it was."""
        self._attention.uninstall()

    def host_batch(self, documents: Sequence[Document], tokens: int, pin: bool) -> HostBatch:
        laid = lay_side_by_side(documents, tokens)
        return HostBatch(laid.buffer(pin), laid.unpack)

    @contextmanager
    def engaged(self) -> Iterator[None]:
        self._attention.backend = self.site.attention
        before = [aside.calls for aside in self.asides.values()]
        with self._attention.engaged():
            yield
        for (kind, aside), then in zip(self.asides.items(), before, strict=True):
            self.left[kind] += aside.calls - then

    def notes(self) -> list[str]:
        return [
            f"note: {kind}: {calls:,} calls in training and evaluation stepped aside: the modules' own operations answered"
            " (the same result, slower), for adapters, dtypes, hooks or arguments that the kernels were not made for"
            for kind, calls in self.left.items()
            if calls
        ]

    def loss(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        hidden_TD = hidden_states(self.model, batch)
        if self.site.labelled_rows:
            return self.head(hidden_TD, batch, self.objective)
        return self.loss_of_all_logits(hidden_TD, batch)

    def loss_of_all_logits(self, hidden_TD: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """As `loss`, with the logits of every token at once, in float32, and their gradient by autograd."""
        labels_T = torch.full_like(batch.ids_T, IGNORE)
        labels_T[batch.predictors_N + 1] = batch.targets_N
        return self.objective(self.head.few_logits(hidden_TD), labels_T)
