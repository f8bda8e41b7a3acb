"""What is kept of a forward pass in host memory, and back on the device before the backward pass needs it.

Copies run on streams of their own beside the computation. A tensor's memory on the device is free again once its copy is
done, in the order of the computing stream, so that a host that runs ahead frees as much as one that does not: streams wait
for events, the host for nothing. After Rhu et al., vDNN, arXiv 1602.08124.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.profiler import record_function

from dynotune.model.activations.keeping import Kept, refuse_changed

LEAST = 1 << 20
"""Bytes. What is smaller stays: a launch costs more than its bytes."""

UNDER_WAY = 1 << 29
"""Bytes on their way in either direction: an input or two of a layer, or parts of one."""

TO_HOST, BACK = "activations to the host: ", "activations back from the host: "
"""Begin the names of ranges that tell who traces how many bytes the keeper moved: `activations to the host: 4096 bytes`."""


class Copies(Protocol):
    """Copies between device and host, in the order of the computation."""

    def to_host(self, flat: Tensor) -> tuple[Tensor, Any]:
        """A copy on the host and what says that it is done."""
        ...

    def to_device(self, flat: Tensor) -> tuple[Tensor, Any]:
        """A copy on the device and what says that it is done."""
        ...

    def done(self, copied: Any) -> None:
        """What is computed from here on comes behind the copy."""
        ...


class StreamCopies:
    """On two streams of a GPU, from and to pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.out, self.back = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def to_host(self, flat: Tensor) -> tuple[Tensor, torch.cuda.Event]:
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        return host, self._copy(host, flat, self.out)

    def to_device(self, flat: Tensor) -> tuple[Tensor, torch.cuda.Event]:
        # Of the computing stream's pool, which it goes back to; so the copy waits for what that memory held before.
        there = torch.empty(flat.shape, dtype=flat.dtype, device=self.device)
        return there, self._copy(there, flat, self.back)

    def done(self, copied: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self.device).wait_event(copied)

    def _copy(self, to: Tensor, of: Tensor, stream: torch.cuda.Stream) -> torch.cuda.Event:
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            to.copy_(of, non_blocking=True)
            return stream.record_event()  # type: ignore[no-any-return]


class PlainCopies:
    """One after another, in the place of `StreamCopies` where there is no GPU."""

    def to_host(self, flat: Tensor) -> tuple[Tensor, None]:
        return flat.clone(), None

    def to_device(self, flat: Tensor) -> tuple[Tensor, None]:
        return flat.clone(), None

    def done(self, copied: None) -> None:
        return None


@dataclass(slots=True)
class _Away:
    """A storage that went to the host."""

    host: Tensor
    gone: Any
    prior: "_Away | None"
    """The one that went before it, which the backward pass needs after it."""

    wanted: int = 0
    """Saved tensors that lie in it."""

    taken: int = 0
    here: Tensor | None = None
    back: Any = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A saved tensor of it."""

    of: _Away
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(slots=True)
class InHostMemory:
    """A `Keeper`. Every storage that holds a tensor over all tokens goes once, whoever saves it."""

    copies: Copies
    least: int = LEAST
    under_way: int = UNDER_WAY
    bytes: int = 0
    """That went to the host in the latest forward pass."""

    _tokens: int = 0
    _known: dict[int, _Away] = field(default_factory=dict)
    """By storage, those that are on their way: their memory is still theirs, so the address names them."""

    _leaving: deque[tuple[int, Tensor, int, _Away]] = field(default_factory=deque)
    _last: _Away | None = None

    def begin(self, tokens: int) -> None:
        self._tokens, self._last, self.bytes = tokens, None, 0

    def pack(self, tensor: Tensor) -> Kept | _Part:
        if not self._goes(tensor):
            return Kept.of(tensor)
        address = tensor.untyped_storage()._cdata
        away = self._known.get(address) or self._send(address, tensor)
        away.wanted += 1
        return _Part(away, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def unpack(self, packed: Kept | _Part) -> Tensor:
        if isinstance(packed, Kept):
            return packed.get()
        away = packed.of
        if away.here is None:
            self._fetch(away)
        self._fetch_ahead(away)
        assert away.here is not None
        self.copies.done(away.back)
        found = away.here.as_strided(packed.size, packed.stride, packed.offset)
        away.taken += 1
        if away.taken % away.wanted == 0:
            away.here = None
        return found

    def end(self) -> None:
        with record_function(f"{TO_HOST}{self.bytes} bytes"):
            while self._leaving:
                self._let_go()
        self._last = None

    def _goes(self, tensor: Tensor) -> bool:
        """Activations are told from weights and their copies by having a size that is the pass' tokens. A weight that has it
        too goes in vain, and comes back as it was."""
        whole = tensor.untyped_storage().nbytes()
        return (
            self._tokens in tensor.shape
            and not isinstance(tensor if tensor._base is None else tensor._base, torch.nn.Parameter)
            and tensor.layout is torch.strided
            and tensor.nbytes >= self.least
            and whole % tensor.itemsize == 0
            and 0 not in tensor.stride()
            and whole < 2 * tensor.nbytes
        )

    def _send(self, address: int, tensor: Tensor) -> _Away:
        elements = tensor.untyped_storage().nbytes() // tensor.itemsize
        flat = tensor.detach().as_strided((elements,), (1,), 0)
        away = _Away(*self.copies.to_host(flat), self._last)
        self._last = self._known[address] = away
        self._leaving.append((address, flat, flat._version, away))
        self.bytes += flat.nbytes
        while len(self._leaving) > 1 and sum(one.nbytes for _, one, _, _ in self._leaving) > self.under_way:
            self._let_go()
        return away

    def _let_go(self) -> None:
        address, flat, version, away = self._leaving.popleft()
        refuse_changed(flat, version)  # the copy may have read either value
        self.copies.done(away.gone)
        del self._known[address]

    def _fetch(self, away: _Away) -> None:
        with record_function(f"{BACK}{away.host.nbytes} bytes"):
            away.here, away.back = self.copies.to_device(away.host)

    def _fetch_ahead(self, away: _Away) -> None:
        ahead, prior = 0, away.prior
        while prior is not None and ahead + prior.host.nbytes <= self.under_way:
            ahead += prior.host.nbytes
            if prior.here is None and prior.taken < prior.wanted:
                self._fetch(prior)
            prior = prior.prior
