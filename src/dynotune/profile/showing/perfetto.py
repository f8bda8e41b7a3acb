"""Traces as Chrome's JSON, packed: https://ui.perfetto.dev and `chrome://tracing` open the file as it is.

Beside what ran on the host and the device stands a track of the classes of work, which is what the profile adds up.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynotune.measure.evidence import Source
from dynotune.measure.timelines.rows import segments_of
from dynotune.measure.traces.events import Events
from dynotune.profile.analysis.breakdown import has_kernels, surroundings
from dynotune.profile.records.record import Record

HOST, DEVICE, CLASSES = 1, 2, 3
"""Processes, as the viewer calls its groups of tracks."""

KERNELS, COMMUNICATION, COPIES = 0, 100, 200
"""First tracks of the device. A record keeps no streams: what runs at the same time stands on one track behind the other,
since a viewer draws events of one track only where they lie within each other or apart."""

TRACKS = {KERNELS: "kernels", COMMUNICATION: "communication", COPIES: "copies"}


def write_trace(record: Record, path: Path) -> None:
    """All traced steps, one behind another as they ran. Raises `OSError`."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for i, event in enumerate(trace_events(record)):
            file.write((",\n" if i else "") + json.dumps(event))
        file.write("\n]}\n")


def trace_events(record: Record) -> Iterator[dict[str, Any]]:
    """Times are microseconds from the first step's beginning."""
    for number, name in ((HOST, "host"), (DEVICE, "device"), (CLASSES, "classes of work")):
        yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}
    zero = min((one.where.step[0] for one in record.traced), default=0)
    around = surroundings(record)
    for track, name in TRACKS.items() if any(has_kernels(one) for one in record.traced) else ():
        yield {"ph": "M", "pid": DEVICE, "tid": track, "name": "thread_name", "args": {"name": name}}
    for number, one in enumerate(record.traced):
        events, where = one.events, one.where
        track_of = _tracks(events, where.in_step)
        launched = _launches(events, where.in_step)
        for i in np.flatnonzero(where.in_step).tolist():
            on_device = i in track_of
            pid, tid = (DEVICE, track_of[i]) if on_device else (HOST, int(events.thread[i]))
            begin = (int(events.start[i]) - zero) / 1e3
            yield {
                "ph": "X",
                "name": events.names[i],
                "cat": str(events.kinds[i]),
                "pid": pid,
                "tid": tid,
                "ts": begin,
                "dur": int(events.end[i] - events.start[i]) / 1e3,
                "args": {
                    **({"module": where.places[where.place[i]]} if where.place[i] else {}),
                    **({"shapes": str(list(map(list, events.shapes[i])))} if events.shapes[i] else {}),
                    **({"types": ", ".join(events.dtypes[i])} if any(events.dtypes[i]) else {}),
                },
            }
            if i in launched:  # an arrow from the launch to what it launched
                flow = {"name": "launch", "cat": "launch", "pid": pid, "tid": tid, "ts": begin}
                flow["id"] = (number << 40) + int(events.correlation[i])
                yield {"ph": "f", "bp": "e", **flow} if on_device else {"ph": "s", **flow}
        line = segments_of(events, where, around, has_kernels(one))
        begin = 0
        for k, work in enumerate(line.work):
            if k + 1 < len(line.work) and line.work[k + 1] is work:
                continue
            start, end = int(line.edge[begin]), int(line.edge[k + 1])
            begin = k + 1
            yield {
                "ph": "X", "name": str(work), "cat": "class", "pid": CLASSES, "tid": 0, "ts": (start - zero) / 1e3,
                "dur": (end - start) / 1e3,
            }  # fmt: skip


def _tracks(events: Events, in_step: NDArray[np.bool_]) -> dict[int, int]:
    """The track of each event of the device: the first of its kind that is free."""
    found: dict[int, int] = {}
    busy: dict[int, int] = {}
    on_device = [i for i in np.flatnonzero(in_step).tolist() if events.kinds[i] in (Source.KERNEL, Source.COPY)]
    for i in sorted(on_device, key=lambda i: (int(events.start[i]), -int(events.end[i]))):
        kernel = KERNELS if not events.names[i].startswith("nccl") else COMMUNICATION
        track = COPIES if events.kinds[i] is Source.COPY else kernel
        while busy.get(track, 0) > int(events.start[i]):
            track += 1
        found[i], busy[track] = track, int(events.end[i])
    return found


def _launches(events: Events, in_step: NDArray[np.bool_]) -> set[int]:
    """Events with the other half of their launch among them: a runtime call, and what it put on the device."""
    calls: dict[int, int] = {}
    ran: dict[int, int] = {}
    for i in np.flatnonzero(in_step).tolist():
        if events.kinds[i] is Source.RUNTIME:
            calls[int(events.correlation[i])] = i
        elif events.kinds[i] in (Source.KERNEL, Source.COPY):
            ran.setdefault(int(events.correlation[i]), i)  # of a graph the first one
    return {i for number in calls.keys() & ran.keys() for i in (calls[number], ran[number])}
