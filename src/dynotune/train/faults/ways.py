"""Ways to execute a step again: as it was, plainly, and with one speed-up at a time left out.

The registry of speed-ups will take the place of the list here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dynotune.data.examples import IGNORE
from dynotune.execution.packed import PackedPath
from dynotune.execution.path import ExecutionPath
from dynotune.execution.plain import PlainPath
from dynotune.model.attention import hidden_states, stock_attention, text_decoder
from dynotune.model.packed import PackedBatch
from dynotune.objectives.sft import Objective

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Forwards = Sequence[tuple[nn.Module, Any]]
"""Modules, and what stands in the place of each one's forward."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to execute micro-batches."""

    name: str
    path: ExecutionPath
    """Lays documents out."""

    loss: Callable[[Any], Tensor]
    around: Callable[[], AbstractContextManager[Any]]
    """What forward and backward run in."""

    autocast: Callable[[], Any]


@dataclass(slots=True)
class Ways:
    """Those of one run."""

    model: "PreTrainedModel"
    objective: Objective
    path: ExecutionPath
    autocast: Callable[[], Any]
    plain_autocast: Callable[[], Any]
    kernels: dict[str, Forwards] = field(default_factory=dict)
    """By name: what was put in the place of modules' own forward, and can be taken out."""

    def as_executed(self) -> Way:
        return Way("as executed", self.path, lambda batch: self.path.loss(batch)[0], self.path.engaged, self.autocast)

    def plain(self) -> Way:
        """Stock transformers, one document at a time."""
        plain = PlainPath(self.model, self.objective)

        def around() -> AbstractContextManager[Any]:
            return without([pair for forwards in self.kernels.values() for pair in forwards])

        return Way("the plain path", plain, lambda batch: plain.loss(batch)[0], around, self.plain_autocast)

    def without_one(self) -> Iterator[Way]:
        """As executed, but for one speed-up, by whose name the way goes."""
        for name, forwards in self.kernels.items():
            yield self._without(name, forwards)
        if isinstance(self.path, PackedPath):
            path = self.path
            yield Way(
                "packed attention", path, lambda batch: self._stock_attention(path, batch), nullcontext, self.autocast
            )
            yield Way(
                "the labelled-rows head", path, lambda batch: self._own_head(path, batch), path.engaged, self.autocast
            )

    def _without(self, name: str, forwards: Forwards) -> Way:
        @contextmanager
        def around() -> Iterator[None]:
            with without(forwards), self.path.engaged():
                yield

        return Way(name, self.path, lambda batch: self.path.loss(batch)[0], around, self.plain_autocast)

    def _stock_attention(self, path: PackedPath, batch: PackedBatch) -> Tensor:
        """The documents of a packed micro-batch one after another under transformers' own attention, then the head."""
        decoder = text_decoder(self.model)
        with stock_attention(self.model):
            segments = batch.ids_T.split(list(batch.lengths))
            parts = [decoder(input_ids=ids_T[None], use_cache=False).last_hidden_state[0] for ids_T in segments]
        return path.head(torch.cat(parts), batch, self.objective)[0]

    def _own_head(self, path: PackedPath, batch: PackedBatch) -> Tensor:
        """All logits of the label tokens at once, and the loss by autograd."""
        hidden_ND = hidden_states(self.model, batch)[batch.predictors_N]
        logits_NV = path.head.few_logits(hidden_ND)
        # The objective's row t predicts label t + 1.
        logits_TV = torch.cat([logits_NV, logits_NV[:1] * 0])
        ignored = torch.full((1,), IGNORE, dtype=batch.targets_N.dtype, device=batch.targets_N.device)
        return self.objective(logits_TV, torch.cat([ignored, batch.targets_N]))[0]


@contextmanager
def without(forwards: Forwards) -> Iterator[None]:
    """Inside, these modules have their own forward. The state on exit is that on entry."""
    with ExitStack() as back:
        for module, forward in forwards:
            if module.__dict__.get("forward") is forward:
                del module.forward
                back.callback(setattr, module, "forward", forward)
        yield
