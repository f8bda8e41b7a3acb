"""Traces as Chrome's JSON, packed: https://ui.perfetto.dev and `chrome://tracing` open the file as it is.

Beside what ran on the host and the device stands a track of the classes of work, which is what the profile adds up.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dynotune.measure.evidence import Source
from dynotune.measure.timeline import segments_of
from dynotune.profile.breakdown import has_kernels, surroundings
from dynotune.profile.record import Record

HOST, DEVICE, CLASSES = 1, 2, 3
"""Processes, as the viewer calls its groups of tracks."""


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
    for one in record.traced:
        events, where = one.events, one.where
        for i in np.flatnonzero(where.in_step).tolist():
            on_device = events.kinds[i] in (Source.KERNEL, Source.COPY)
            yield {
                "ph": "X",
                "name": events.names[i],
                "cat": str(events.kinds[i]),
                "pid": DEVICE if on_device else HOST,
                "tid": int(events.kinds[i] is Source.COPY) if on_device else int(events.thread[i]),
                "ts": (int(events.start[i]) - zero) / 1e3,
                "dur": int(events.end[i] - events.start[i]) / 1e3,
                "args": {
                    **({"module": where.places[where.place[i]]} if where.place[i] else {}),
                    **({"shapes": str(list(map(list, events.shapes[i])))} if events.shapes[i] else {}),
                    **({"types": ", ".join(events.dtypes[i])} if any(events.dtypes[i]) else {}),
                },
            }
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
