"""A stand-in for streams: operators run at once, and who may run beside whom is kept by vector clocks.

What a real device would do in some order, this finds in every order: a tensor that is read before its writer is known to be
done, written while another stream may still read it, or freed so early that its memory may be handed out under a reader.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynotune.model import branches as branches_module

Clock = Counter[str]
"""How far each stream is known to be done."""


class Stream:
    """As much of `torch.cuda.Stream` as is used."""

    def __init__(self, name: str) -> None:
        self.name, self.clock = name, Clock()
        self.calls = Counter[str]()
        """Operators that ran here, by name."""

    def wait_event(self, event: Clock) -> None:
        self.clock |= event

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())

    def record_event(self) -> Clock:
        return Clock(self.clock)


class Device:
    """Streams, and which is the current one. `races` is empty if all is well."""

    def __init__(self) -> None:
        self.main, self.soon, self.late = Stream("main"), Stream("soon"), Stream("late")
        self.current = self.main
        self.races: list[str] = []

    @property
    def streams(self) -> tuple[Stream, Stream, Stream]:
        return self.main, self.soon, self.late

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """`torch.cuda.stream`."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @property
    def is_joined(self) -> bool:
        """Whether the main stream knows that all others are done."""
        return all(self.main.clock[one.name] == one.clock[one.name] for one in self.streams)


class Watch(TorchDispatchMode):
    """Inside, operators run on the device's current stream."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.wrote: dict[int, tuple[str, int]] = {}
        self.read: dict[int, list[tuple[str, int]]] = {}
        self.owner: dict[int, Stream] = {}
        self.alive: dict[int, StorageWeakRef] = {}
        self.freed: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._sweep()
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given = [*zip(func._schema.arguments, args, strict=False)]
        given += [(one, kwargs[one.name]) for one in func._schema.arguments if one.name in kwargs]
        changed = {key for one, value in given if _is_written(one) for key in _storages(value)}
        seen = {key for one, value in given if not _is_written(one) for key in _storages(value)}
        if func is torch.ops.aten.addmm.default and kwargs.get("beta") == 0:
            seen -= _storages(args[0]).keys() - _storages(args[1:]).keys()  # its values are not read
        made = {key: value for key, value in _storages(out).items() if key not in changed}
        if not changed and made and all(key in _storages((args, kwargs)) for key in made):
            return out  # a view: nothing runs
        stream = self.device.current
        stream.calls[func.__name__] += 1
        stream.clock[stream.name] += 1
        now = stream.name, stream.clock[stream.name]
        name = f"{func.__name__} on {stream.name}"
        self._check(f"{name}: memory is still read by", self.freed[stream.name], stream)
        self.freed[stream.name] = []
        for key in seen | changed:
            self._check(f"{name} reads what is not written yet by", [self.wrote.get(key, now)], stream)
        for key in changed:
            self._check(f"{name} writes what is still read by", self.read.get(key, []), stream)
        for key, storage in made.items():
            self.owner[key], self.alive[key] = stream, StorageWeakRef(storage)
        for key in changed | made.keys():
            self.wrote[key] = now
        for key in seen:
            self.read.setdefault(key, []).append(now)
        return out

    def _sweep(self) -> None:
        """Note what was freed since."""
        for key in [key for key, one in self.alive.items() if one.expired()]:
            del self.alive[key]
            owner = self.owner.pop(key)
            self.freed[owner.name] += [self.wrote.pop(key), *self.read.pop(key, [])]

    def _check(self, what: str, uses: list[tuple[str, int]], stream: Stream) -> None:
        for name, number in uses:
            if stream.clock[name] < number:
                self.device.races.append(f"{what} {name}")


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _storages(values: Any) -> dict[int, Any]:
    tensors = [one for one in tree_leaves(values) if isinstance(one, Tensor)]
    return {one.untyped_storage()._cdata: one.untyped_storage() for one in tensors}


@contextmanager
def stand_in() -> Iterator[Device]:
    """A device that branches take for CUDA."""
    found = Device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_stream", lambda *_: found.current)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "stream", found.on)
        patch.setattr(branches_module, "streams_of", lambda _: branches_module.Streams(*found.streams))
        patch.setattr(branches_module, "_current_stream", lambda _: found.current)
        yield found
