"""What a trace says of a whole step: launches, waits of the host, copies, how busy the device was, what was compiled."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Source
from dynotune.measure.traces.attribution import PHASES, Attribution
from dynotune.measure.traces.events import Events

LAUNCH = re.compile(r"(cu|cuda|hip)(Graph|Module)?Launch")
WAIT = re.compile(r"(cu|cuda|hip)((Stream|Device|Event|Ctx)Synchronize|Memcpy(?!.*Async))")
"""Runtime calls in which the host stands still until the device is done."""

READ_ON_HOST = "aten::_local_scalar_dense"
"""A value goes to the host. Of a tensor on a GPU the host waits for it; of one on the CPU it costs nothing."""

_ASKS = ("aten::item", "aten::is_nonzero", READ_ON_HOST)
"""Operators by which Python asks for a value."""

_SIZES = {
    "double": 8, "long int": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2, "short int": 2, "bool": 1,
    "unsigned char": 1, "signed char": 1,
}  # fmt: skip


def facts_of(events: Events, attribution: Attribution) -> dict[str, Any]:
    """Facts of the traced step.

    `launches` (of kernels and graphs) and `launches_by_phase`; `waits_of_host`, each with name, phase, place, count: calls
    of the runtime, and values that Python asks for;
    `copies` by kind, each with count, bytes and microseconds; `device_busy_us` (at least one kernel or copy ran) and
    `kernels_us` (their sum); `wall_us`; `kernels` and `unattributed_kernels`, the latter also by name in `unattributed`.
    """
    of_step = attribution.in_step
    kernels = of_step & events.of_kind(Source.KERNEL)
    copies = of_step & events.of_kind(Source.COPY)
    runtime = np.flatnonzero(of_step & events.of_kind(Source.RUNTIME))
    launches = [i for i in runtime if LAUNCH.match(events.names[i])]
    lost = Counter(events.names[i] for i in np.flatnonzero(kernels & ~attribution.found))
    begin, end = attribution.step
    return {
        "launches": len(launches),
        "launches_by_phase": dict(Counter(str(PHASES[attribution.phase[i]]) for i in launches)),
        "waits_of_host": _waits(events, attribution),
        "copies": _copies(events, attribution, np.flatnonzero(copies)),
        "device_busy_us": _covered(events.start[kernels | copies], events.end[kernels | copies]) / 1e3,
        "kernels_us": float((events.end - events.start)[kernels].sum()) / 1e3,
        "kernels": int(kernels.sum()),
        "wall_us": (end - begin) / 1e3,
        "unattributed_kernels": lost.total(),
        "unattributed": dict(lost),
    }


def together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`facts_of` a step that was traced in several stretches: numbers are sums, and lists follow one another."""
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if isinstance(value, Mapping):
                found[name] = together([found.get(name, {}), value])
            else:
                found[name] = found[name] + value if name in found else value
    return found


def _waits(events: Events, attribution: Attribution) -> list[dict[str, Any]]:
    found = Counter[tuple[str, int, int]]()
    waits = {name for name in set(events.names) if name == READ_ON_HOST or WAIT.match(name)}
    named = np.fromiter(map(waits.__contains__, events.names), np.bool_, len(events.names))
    own = _read_by_operators(events)
    for i in np.flatnonzero(named & attribution.in_step & events.of_kind(Source.RUNTIME, Source.OPERATOR)):
        if i not in own:
            found[events.names[i], int(attribution.phase[i]), int(attribution.place[i])] += 1
    return [
        {"name": name, "phase": str(PHASES[phase]), "place": attribution.places[place], "count": count}
        for (name, phase, place), count in found.items()
    ]


def _read_by_operators(events: Events) -> set[int]:
    """Values that an operator reads for itself: where it is one of the CPU, that says nothing of a GPU's."""
    around = events.of_kind(Source.OPERATOR)
    around &= np.fromiter((n.startswith("aten::") and n not in _ASKS for n in events.names), np.bool_, len(around))
    start, end, thread = events.start[around], events.end[around], events.thread[around]
    reads = [i for i, name in enumerate(events.names) if name == READ_ON_HOST]
    return {
        i
        for i in reads
        if bool(((thread == events.thread[i]) & (start <= events.start[i]) & (end >= events.end[i])).any())
    }


def _copies(events: Events, attribution: Attribution, which: Iterable[int]) -> dict[str, dict[str, float]]:
    kinds: dict[str, dict[str, float]] = {}
    for i in which:
        kind = kinds.setdefault(events.names[i], {"count": 0, "bytes": 0, "microseconds": 0.0})
        kind["count"] += 1
        kind["bytes"] += bytes_of_copy(events, attribution, i)
        kind["microseconds"] += float(events.end[i] - events.start[i]) / 1e3
    return kinds


def bytes_of_copy(events: Events, attribution: Attribution, i: int) -> int:
    """Bytes that a copy moved: as the profiler says, else by the tensor of its operator; 0 where neither tells."""
    told = int(events.bytes[i])
    operator = int(attribution.operator[i])
    if told or operator < 0 or not events.dtypes[operator] or not events.shapes[operator]:
        return told
    return int(np.prod(events.shapes[operator][0], dtype=np.int64)) * _SIZES.get(events.dtypes[operator][0], 0)


def _covered(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """The length of the union of intervals."""
    if not len(start):
        return 0
    order = np.argsort(start)
    start, end = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - end[:-1], 0)
    return int(end[-1] - start[0] - gaps.sum())


def compile_counters() -> dict[str, dict[str, int]]:
    """What torch.compile has counted in this process; empty where nobody has used it, and then it is not imported."""
    module: Any = sys.modules.get("torch._dynamo.utils")
    counters: Mapping[str, Mapping[str, int]] = module.counters if module is not None else {}
    return {group: dict(counts) for group, counts in counters.items()}


def counted_since(before: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What torch.compile counted since: new frames, graphs, breaks with their reason. Empty where it did nothing."""
    found: dict[str, dict[str, int]] = {}
    for group, counts in compile_counters().items():
        then = before.get(group, {})
        more = {key: count - then.get(key, 0) for key, count in counts.items() if count != then.get(key, 0)}
        if more:
            found[group] = more
    return found
