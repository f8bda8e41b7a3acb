"""The profiler's raw events as columns, sorted into kinds. By names, since versions of PyTorch offer different fields."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch._C._autograd import DeviceType

from dynotune.measure.evidence import Source

MARK = "dynotune:"
"""Begins the names of the tracer's own ranges."""

NODE = "autograd::engine::evaluate_function: "
"""Begins the names of the events in which autograd runs a node."""

_RUNTIME = re.compile(r"(cu|cuda|hip)[A-Z]")
_COPY = re.compile(r"Mem(cpy|set) ")
_REGION = re.compile(r"Torch-Compiled Region|## Call CompiledFxGraph")
_PROFILERS_OWN = frozenset(
    {
        "Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Instrumentation", "Lazy Function Loading",
        "Resource", "Runtime Triggered Module Loading", "Unrecognized", "[memory]", "[OutOfMemory]",
    }
)  # fmt: skip

ANNOTATION = "annotation"
"""The kind of ranges that a user or the tracer marked."""

Kind = Source | str

_ON_DEVICE = frozenset({Source.KERNEL, Source.COPY})
_OF_THREADS = frozenset({Source.OPERATOR, Source.REGION, ANNOTATION})


@dataclass(frozen=True, slots=True)
class Events:
    """One entry for each event, in the order of the profiler, which is that of time for the host's own."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    start: NDArray[np.int64]
    """Nanoseconds, on one clock for host and device."""

    end: NDArray[np.int64]
    thread: NDArray[np.int64]
    """Of host events: the operating system's number. Device events: -1."""

    torch_thread: NDArray[np.int64]
    """PyTorch's number of it, which nodes name their forward's thread by. 0 where it has none."""

    correlation: NDArray[np.int64]
    """Ties a device event to the runtime call that launched it. An operator's own number, too, in a space of its own."""

    linked: NDArray[np.int64]
    """Of runtime calls and device events: the number of the operator around them; 0 where there was none."""

    sequence: NDArray[np.int64]
    """Autograd's number, within a thread, of the node that an operator makes or that is run; -1 where there is none."""

    forward_thread: NDArray[np.int64]
    """Of nodes that are run: the thread (PyTorch's number) that made them; 0 for others."""

    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    dtypes: tuple[tuple[str, ...], ...]
    bytes: NDArray[np.int64]
    """Of copies, as far as the profiler or the operator tells; else 0."""

    def of_kind(self, *kinds: Kind) -> NDArray[np.bool_]:
        return _whether(self.kinds, kinds)


def read(raw: Sequence[Any]) -> Events:
    """Columns of `profile.profiler.kineto_results.events()`."""
    names = [*map(methodcaller("name"), raw)]
    rows = [row for row in zip(raw, names, _kinds(raw, names), strict=True) if row[2] is not None]
    kept = [event for event, _, _ in rows]
    kinds: tuple[Kind, ...] = tuple(kind for _, _, kind in rows if kind is not None)
    shapes, dtypes = _arguments(kept, kinds)
    start = _told(kept, "start_ns")
    return Events(
        names=tuple(name for _, name, _ in rows),
        kinds=kinds,
        start=start,
        end=start + _told(kept, "duration_ns"),
        thread=np.where(_whether(kinds, _ON_DEVICE), -1, _told(kept, "device_resource_id")),
        torch_thread=np.where(_whether(kinds, _OF_THREADS), _told(kept, "start_thread_id"), 0),
        correlation=_told(kept, "correlation_id"),
        linked=_told(kept, "linked_correlation_id"),
        sequence=_told(kept, "sequence_nr"),
        forward_thread=_told(kept, "fwd_thread_id"),
        shapes=shapes,
        dtypes=dtypes,
        bytes=_bytes_of_copies(kept, kinds),
    )


def _told(raw: Sequence[Any], what: str) -> NDArray[np.int64]:
    """What each event answers when it is asked so. A generator would take longer than the answers."""
    return np.fromiter(map(methodcaller(what), raw), np.int64, len(raw))


def _whether(kinds: Sequence[Kind], wanted: Iterable[Kind]) -> NDArray[np.bool_]:
    return np.fromiter(map(frozenset(wanted).__contains__, kinds), np.bool_, len(kinds))


def _kinds(raw: Sequence[Any], names: Sequence[str]) -> list[Kind | None]:
    """None: not of the step (the profiler's own doings; ranges as they are drawn on the device's time line)."""
    cpu = DeviceType.CPU
    on_host = [kind is cpu or kind == cpu for kind in map(methodcaller("device_type"), raw)]
    marked = set(compress(names, map(methodcaller("is_user_annotation"), raw)))
    by_name: dict[tuple[str, bool], Kind | None] = {}
    for name, host in set(zip(names, on_host, strict=True)):
        by_name[name, host] = (_on_host if host else _on_device)(name, name in marked)
    return [by_name[key] for key in zip(names, on_host, strict=True)]


def _on_host(name: str, marked: bool) -> Kind | None:
    if name in _PROFILERS_OWN:
        return None
    if _REGION.match(name):
        return Source.REGION
    if marked:
        return ANNOTATION
    return Source.RUNTIME if _RUNTIME.match(name) else Source.OPERATOR


def _on_device(name: str, marked: bool) -> Kind | None:
    if marked or name.startswith(MARK) or name in _PROFILERS_OWN or _REGION.match(name):
        return None
    return Source.COPY if _COPY.match(name) else Source.KERNEL


def _arguments(
    raw: Sequence[Any], kinds: Sequence[Kind]
) -> tuple[tuple[tuple[tuple[int, ...], ...], ...], tuple[tuple[str, ...], ...]]:
    shapes: list[tuple[tuple[int, ...], ...]] = []
    dtypes: list[tuple[str, ...]] = []
    for event, kind in zip(raw, kinds, strict=True):
        has = kind is Source.OPERATOR
        shapes.append(tuple(map(tuple, event.shapes())) if has else ())
        dtypes.append(tuple(event.dtypes()) if has else ())
    return tuple(shapes), tuple(dtypes)


_BYTES = re.compile(r'"bytes":\s*(\d+)')


def _bytes_of_copies(raw: Sequence[Any], kinds: Sequence[Kind]) -> NDArray[np.int64]:
    found = np.zeros(len(raw), np.int64)
    for i in np.flatnonzero(_whether(kinds, (Source.COPY,))).tolist():
        found[i] = _bytes(raw[i])
    return found


def _bytes(event: Any) -> int:
    """From what newer versions tell of an event in JSON."""
    tells = getattr(event, "metadata_json", None)
    found = _BYTES.search(tells()) if tells is not None else None
    return int(found[1]) if found else max(int(event.nbytes()), 0)
