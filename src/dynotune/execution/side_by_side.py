"""What all paths share that lay documents side by side: packed attention in the model, and the head that runs."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.execution.path import ExecutionPath
from dynotune.model.aside import Aside
from dynotune.model.attention import packed_attention, stock_attention, text_decoder
from dynotune.model.head import Head
from dynotune.model.without_cudnn import without_cudnn_attention

if TYPE_CHECKING:
    from dynotune.speedups.site import Site


class SideBySidePath(ExecutionPath):
    """Engages packed attention, with the backend that stands at each time."""

    def __init__(self, site: "Site", asides: Mapping[str, Aside] | None = None) -> None:
        """Call `close` when the run is over.

        site: says, at each micro-batch, what runs: which attention, whether the head sees label tokens only.
        asides: by name of a speed-up, the count of calls that it left to the modules it stands in for.
        """
        assert site.head is not None
        self.site = site
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

    @abstractmethod
    def made_up(self, units: Any, rows: NDArray[np.int64], vocabulary: int) -> list[Any]:
        """Items of the shapes of these rows of `units`, as they are laid out here, with labels wherever some may be."""

    @abstractmethod
    def loss_one_by_one(self, batch: Any) -> Tensor:
        """The loss [] of `loss`, each sequence in a pass of its own under transformers' own attention, then the head. Not
        inside of `engaged`."""

    def _hidden_one_by_one(self, sequences: Iterable[Tensor]) -> Tensor:
        """What the head would get of these token ids, each in a pass of its own: [tokens of all, D]."""
        decoder = text_decoder(self.model)
        with stock_attention(self.model):
            return torch.cat(
                [decoder(input_ids=ids_n[None], use_cache=False).last_hidden_state[0] for ids_n in sequences]
            )

    def close(self) -> None:
        """The model as it was."""
        self._attention.uninstall()

    @contextmanager
    def engaged(self) -> Iterator[None]:
        self._attention.backend = self.site.attention
        before = [aside.calls for aside in self.asides.values()]
        with self._attention.engaged(), without_cudnn_attention():  # the reference's calls have ever new lengths
            yield
        for (kind, aside), then in zip(self.asides.items(), before, strict=True):
            self.left[kind] += aside.calls - then

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Inside, what kernels leave to modules is nothing to tell: a reference has no adapter that they could compute, and
        trials run under what training may never have."""
        before, left = [(aside.calls, aside.whys.copy()) for aside in self.asides.values()], self.left.copy()
        try:
            yield
        finally:
            self.left = left
            for aside, known in zip(self.asides.values(), before, strict=True):
                aside.calls, aside.whys = known

    def notes(self) -> list[str]:
        return [
            f"note: {kind}: {calls:,} calls in training and evaluation stepped aside: the modules' own operations answered"
            f" (the same result, slower), {self._why(kind)}"
            for kind, calls in self.left.items()
            if calls
        ]

    def _why(self, kind: str) -> str:
        known = self.asides[kind].whys
        if not known:
            return "for adapters, dtypes, hooks or arguments that the kernels were not made for"
        return f"because {'; '.join(known)}"
