"""Results of cheap operations made again in the backward pass: those of norms and of gated activations.

A linear layer keeps its input for its weights' gradient. Where that input is the result of a norm or of `act(gate) * up`,
what it was made from is kept anyway, so it is not kept: what made it is called once more. Matrix products and attention
never run twice. The same function on the same values: the same bits.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynotune.model.activations.keeping import Kept

Make = Callable[..., Tensor]


class _Recipe:
    """How a result was made, until its backward is done."""

    __slots__ = ("inputs", "made", "make", "name", "state", "taken", "wanted")

    def __init__(self, make: Make, inputs: tuple[Tensor, ...], state: tuple[str, torch.dtype, bool], name: str) -> None:
        self.make, self.inputs, self.state, self.name = make, [Kept.of(x) for x in inputs], state, name
        self.wanted = self.taken = 0
        self.made: Tensor | None = None

    def again(self) -> Tensor:
        """The result, made at the first of those who want it and let go at the last."""
        if self.made is None:
            kind, dtype, enabled = self.state
            with torch.no_grad(), torch.autocast(kind, dtype, enabled=enabled):
                self.made = self.make(*[x.get() for x in self.inputs])
        made = self.made
        self.taken += 1
        if self.taken % self.wanted == 0:
            self.made = None
        return made


@dataclass(frozen=True, slots=True)
class _Part:
    """A saved tensor that is a result, or lies in one."""

    of: _Recipe
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Remaking:
    """A `Keeper` that is told of results as they are made."""

    def __init__(self) -> None:
        self.passes = 0
        """Forward passes under way."""

        self.not_kept = 0
        """Bytes of results that were not kept, in the latest forward pass."""

        self.told: set[str] = set()
        """Names of the modules whose results it was told of."""

        self.wanted: set[str] = set()
        """Those of them whose results an operation would have kept."""

        self.remade: set[str] = set()
        """Those of them whose results a backward pass had made again."""

        self._known: dict[int, tuple[weakref.ref[Tensor], _Recipe]] = {}
        """By storage. An entry counts only while its tensor lives: then the address names it."""

    def begin(self, tokens: int) -> None:
        self.passes += 1
        self.not_kept = 0

    def end(self) -> None:
        self.passes -= 1
        self._known.clear()

    def made(self, result: Tensor, make: Make, *inputs: Tensor, name: str) -> None:
        """`make(*inputs)` gave `result`, draws nothing at random, and would give the same again. name: of the module."""
        if not self.passes or not torch.is_grad_enabled():
            return
        kind = "cpu" if result.is_meta else result.device.type  # a skeleton has no autocast
        state = kind, torch.get_autocast_dtype(kind), not result.is_meta and torch.is_autocast_enabled(kind)
        self.told.add(name)
        self._known[_address(result)] = weakref.ref(result), _Recipe(make, inputs, state, name)

    def pack(self, tensor: Tensor) -> Kept | _Part:
        found = self._known.get(_address(tensor))
        if found is None:
            return Kept.of(tensor)
        result, recipe = found[0](), found[1]
        if (
            result is None or _address(result) != _address(tensor) or tensor.dtype is not result.dtype
            or result._version or result.storage_offset() or not _is_dense(result)
        ):  # fmt: skip
            return Kept.of(tensor)
        if not recipe.wanted:
            self.not_kept += result.nbytes
            self.wanted.add(recipe.name)
        recipe.wanted += 1
        return _Part(recipe, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def unpack(self, packed: Kept | _Part) -> Tensor:
        if isinstance(packed, Kept):
            return packed.get()
        made = packed.of.again()
        self.remade.add(packed.of.name)
        assert _is_dense(made), "made again in another layout"
        return made.as_strided(packed.size, packed.stride, packed.offset)


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_dense(tensor: Any) -> bool:
    return bool(tensor.is_contiguous())
