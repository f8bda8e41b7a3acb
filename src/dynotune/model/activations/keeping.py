"""Somebody else's word on what autograd keeps of a decoder's forward pass, put around that pass and taken off again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Keeper(Protocol):
    """Decides what becomes of a tensor that an operation saves for its backward."""

    def begin(self, tokens: int) -> None:
        """A forward pass over rows of so many tokens begins, and will be followed by its backward."""
        ...

    def pack(self, tensor: Tensor) -> Any:
        """What to hold in the place of `tensor`. Not `tensor` itself, which may hold the operation that saves it."""
        ...

    def unpack(self, packed: Any) -> Tensor:
        """The tensor again, bit for bit. In the backward pass, perhaps more than once, perhaps never."""
        ...

    def end(self) -> None:
        """The forward pass is over, or failed."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor that stays where it is. Autograd leaves it to hooks to notice that it was written to."""

    tensor: Tensor
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Kept":
        # Detached: an output that its own operation saves would hold that operation, and so itself, for ever. The count of
        # writes stays the same one.
        return cls(tensor.detach(), tensor._version)

    def get(self) -> Tensor:
        refuse_changed(self.tensor, self.version)
        return self.tensor


def refuse_changed(tensor: Tensor, version: int) -> None:
    """Raise what autograd raises where a saved tensor was written to before its backward."""
    if tensor._version != version:
        raise RuntimeError(
            f"a tensor of shape {list(tensor.shape)} that the backward pass needs was modified by an inplace operation: it"
            f" is at version {tensor._version}, and was saved at version {version}"
        )


class Around:
    """Called as `forward` of `decoder`: what was its forward before, with a keeper's hooks around it."""

    def __init__(self, decoder: nn.Module, keeper: Keeper) -> None:
        self.decoder, self.keeper = decoder, keeper
        self.before: Callable[..., Any] | None = decoder.__dict__.get("forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.before or type(self.decoder).forward.__get__(self.decoder)
        if not (torch.is_grad_enabled() and self.decoder.training):
            return own(*args, **kwargs)
        rows = kwargs.get("input_ids", kwargs.get("inputs_embeds", args[0] if args else None))
        self.keeper.begin(rows.shape[1] if isinstance(rows, Tensor) else 0)
        try:
            with torch.autograd.graph.saved_tensors_hooks(self.keeper.pack, self.keeper.unpack):
                return own(*args, **kwargs)
        finally:
            self.keeper.end()

    def put_in(self) -> None:
        self.decoder.forward = self

    def take_out(self) -> None:
        """The forward that was there before. Twice is once."""
        if self.decoder.__dict__.get("forward") is not self:
            return
        if self.before is None:
            del self.decoder.forward
        else:
            self.decoder.forward = self.before
