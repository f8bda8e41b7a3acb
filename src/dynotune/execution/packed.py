"""The packed path: whole documents side by side in a static token count, isolated from each other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from dynotune.execution.path import Document, HostBatch
from dynotune.model.aside import Aside
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.head import Head
from dynotune.model.packed import PackedBatch, lay_side_by_side
from dynotune.objectives.sft import Objective

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PackedPath:
    """Micro-batches as `PackedBatch`: one forward pass through the layers, the head on label tokens only."""

    labelled_rows_head = True

    def __init__(
        self,
        model: "PreTrainedModel",
        head: Head,
        objective: Objective,
        asides: Mapping[str, Aside] | None = None,
    ) -> None:
        """Call `close` when the run is over.

        asides: by name of a kind of kernels, the count of calls that they left to the modules they stand in for.
        """
        self.model, self.head, self.objective = model, head, objective
        self.asides = asides or {}
        self.left = Counter[str]()
        """What kernels left to the modules in packed execution itself, not where generation or callbacks call the model."""

        self._attention = packed_attention(model)
        self._attention.disengage()  # from here on only inside `engaged`

    def close(self) -> None:
        """The model as it was."""
        self._attention.uninstall()

    def host_batch(self, documents: Sequence[Document], tokens: int, pin: bool) -> HostBatch:
        laid = lay_side_by_side(documents, tokens)
        return HostBatch(laid.buffer(pin), laid.unpack)

    @contextmanager
    def engaged(self) -> Iterator[None]:
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
        return self.head(hidden_states(self.model, batch), batch, self.objective)
