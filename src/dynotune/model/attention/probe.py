"""Runs a model on a few tiny documents, packed and alone, and compares.

Legend of shapes: T tokens of the packed row, n tokens of one document, D hidden.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from dynotune.model.as_it_was import as_it_was
from dynotune.model.attention.backends import DEFAULT
from dynotune.model.attention.call import Call
from dynotune.model.attention.decoder import hidden_states, text_decoder
from dynotune.model.attention.install import installed_in, packed_attention, stock_attention
from dynotune.model.base import base_of
from dynotune.model.families import FamilyBatch, pack_families
from dynotune.model.forward import logits_of_document
from dynotune.model.packed import PackedBatch, pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LENGTHS = (13, 1, 7, 19)
TOKENS = 64
FAMILIES = ((8, (13, 9)), (0, (7,)), (11, (19, 12)))
"""The same with documents that begin alike: tokens that a family shares, and those of each of its documents."""

WINDOW = 4
"""Sliding windows are cut to this while they are probed: documents that cross a window of thousands would cost too much."""

Document = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Probe:
    """A model under examination, on its device and in the precision that it is trained in."""

    model: "PreTrainedModel"
    autocast: Callable[[], AbstractContextManager[Any]]
    device: torch.device
    backend: str = DEFAULT
    """Of packed attention, where none is installed in the model; else it is the one of what is installed."""

    shared: bool = False
    """Whether documents begin alike, and are laid out with their beginning once."""

    def documents(self, seed: int) -> list[Document]:
        """Documents of random ids, none of which the configuration gives a meaning. Beginnings are those of every seed."""
        config: Any = text_decoder(self.model).config
        special = {v for k, v in config.to_dict().items() if k.endswith("token_id") and isinstance(v, int)}
        ordinary = np.setdiff1d(np.arange(config.vocab_size), list(special))
        generator = np.random.default_rng(seed)
        if not self.shared:
            return [generator.choice(ordinary, n).astype(np.int32) for n in LENGTHS]
        made: list[Document] = []
        for trunk, lengths in FAMILIES:
            beginning = np.random.default_rng(trunk).choice(ordinary, trunk)
            for n in lengths:
                parting = ordinary[2 * len(made) + seed % 2]  # so that a beginning is no longer than it should be
                rest = generator.choice(ordinary, n - trunk - 1)
                made.append(np.concatenate([beginning, [parting], rest]).astype(np.int32))
        return made

    def packed(self, documents: Sequence[Document], calls: list[Call] | None = None) -> list[Tensor]:
        """Hidden states [n, D] of each document, all in one row with some padding, shared ones for each that has them."""
        batch = self._laid_out(documents)
        installed = installed_in(self.model)
        with packed_attention(self.model, self.backend) if installed is None else installed.engaged(), self.autocast():
            hidden_TD = hidden_states(self.model, batch, attention_calls=calls)
        if isinstance(batch, FamilyBatch):  # a document's keys are its tokens
            return list(hidden_TD[batch.key_rows_K].split(batch.key_lengths)[: len(documents)])
        return list(hidden_TD.split(batch.lengths)[: len(documents)])

    def _laid_out(self, documents: Sequence[Document]) -> PackedBatch | FamilyBatch:
        labelled = [(ids, ids) for ids in documents]
        if not self.shared:
            return pack(labelled, TOKENS, self.device)
        left = iter(labelled)
        return pack_families([[next(left) for _ in lengths] for _, lengths in FAMILIES], TOKENS, self.device)

    def stock(self, ids_n: Document) -> Tensor:
        """Hidden states [n, D] of one document on the plain path: the whole model as transformers runs it."""
        seen: list[Any] = []
        hook = text_decoder(self.model).register_forward_hook(lambda module, args, output: seen.append(output))
        try:
            # The model around its layers as in training: what it does then to what goes in must show.
            with stock_attention(self.model), self.autocast(), in_training([base_of(self.model)]):
                logits_of_document(self.model, torch.from_numpy(ids_n).long().to(self.device))
        finally:
            hook.remove()
        hidden_nD: Tensor = seen[0].last_hidden_state[0]
        return hidden_nD


@contextmanager
def untouched(model: "PreTrainedModel", device: torch.device) -> Iterator[None]:
    """Inside, `model` is in evaluation mode without gradients. Mode, buffers and random states come back."""
    with as_it_was(model, device), torch.no_grad():
        model.eval()
        yield


@contextmanager
def short_windows(model: "PreTrainedModel") -> Iterator[None]:
    """Inside, every sliding window of the decoder is `WINDOW` tokens."""
    decoder = text_decoder(model)
    holders: dict[int, Any] = {}
    for module in decoder.modules():
        for holder in (module, getattr(module, "config", None)):
            window = getattr(holder, "sliding_window", None)
            if isinstance(window, int) and not isinstance(window, bool) and window > 0:
                holders[id(holder)] = holder
    before = [(holder, holder.sliding_window) for holder in holders.values()]
    try:
        for holder, _ in before:
            holder.sliding_window = WINDOW
        yield
    finally:
        for holder, window in before:
            holder.sliding_window = window


@contextmanager
def in_training(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, these modules, but not what they contain, believe that they are being trained."""
    before = [m.training for m in modules]
    try:
        for module in modules:
            module.training = True
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def errors_of_tokens(ours_nD: Tensor, theirs_nD: Tensor) -> Tensor:
    """Relative L2 distance [n] of each token's hidden state. NaN where either is not finite."""
    ours_nD, theirs_nD = ours_nD.double(), theirs_nD.double()
    scale_n = theirs_nD.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    errors_n: Tensor = (ours_nD - theirs_nD).norm(dim=-1) / scale_n
    return errors_n
