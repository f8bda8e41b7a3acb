"""Promise: the exported trace keeps to the format of trace events, so that Perfetto and Chrome draw all of it.

Fields, units and pairs as the format's description has them; events of one track lie within each other or apart, since a
viewer leaves out what does not.
"""

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from dynotune.profile.records.record import Record
from dynotune.profile.showing.perfetto import DEVICE, write_trace
from tests.profile.made import GEMM, busy, record
from tests.profile.test_planted_live import traced_run

RINGS = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def events_of(one: Record, folder: Path) -> list[dict[str, Any]]:
    """As a viewer reads them."""
    path = folder / "trace.json.gz"
    write_trace(one, path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        body = json.load(file, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert body["displayTimeUnit"] in ("ms", "ns")
    return list(body["traceEvents"])


def problems(events: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    tracks: dict[tuple[int, int], list[tuple[float, float, str]]] = defaultdict(list)
    flows: dict[Any, list[tuple[str, float]]] = defaultdict(list)
    slices: set[tuple[int, int, float]] = set()
    for one in events:
        if not isinstance(one.get("name"), str) or not isinstance(one.get("pid"), int):
            found.append(f"no name or process: {one}")
        if one["ph"] == "M":
            if one["name"] not in ("process_name", "thread_name") or not isinstance(one["args"]["name"], str):
                found.append(f"unknown metadata: {one}")
            continue
        times = [one.get("ts"), one.get("dur", 0)]
        if not isinstance(one.get("tid"), int) or not all(isinstance(at, int | float) and at >= 0 for at in times):
            found.append(f"no thread or no time: {one}")
            continue
        if one["ph"] == "X":
            tracks[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"], one["name"]))
            slices.add((one["pid"], one["tid"], one["ts"]))
        elif one["ph"] in "sf":
            flows[one["id"]].append((one["ph"], one["ts"]))
            if (one["pid"], one["tid"], one["ts"]) not in slices:
                found.append(f"a flow without an event: {one}")
        else:
            found.append(f"unknown phase: {one}")
    for track, lines in tracks.items():
        open_until: list[float] = []
        for begin, end, name in sorted(lines, key=lambda line: (line[0], -line[1])):
            while open_until and open_until[-1] <= begin + 1e-6:
                open_until.pop()
            if open_until and end > open_until[-1] + 1e-6:
                found.append(f"{name} on {track} lies across another one")
            open_until.append(end)
    for number, ends in flows.items():
        if Counter(phase for phase, _ in ends) != {"s": 1, "f": 1}:
            found.append(f"half a flow: {number}")
        elif dict(ends)["s"] > dict(ends)["f"]:
            found.append(f"{number} runs before it was launched")
    return found


def two_streams() -> Record:
    """Kernels, a copy and communication at the same time, of which one begins and ends across others."""
    step = busy(800, 8).kernel(RINGS, 150, 950).kernel("Memcpy DtoH (Device -> Pinned)", 50, 250).kernel(GEMM, 760, 900)
    step.microseconds = 1000
    return record(step)


def test_a_trace_of_several_streams_is_valid(tmp_path: Path) -> None:
    events = events_of(two_streams(), tmp_path)
    assert problems(events) == []
    tracks = {one["tid"] for one in events if one["ph"] == "X" and one["pid"] == DEVICE}
    assert len(tracks) == 4, "kernels, those beside them, communication, copies"
    launches = sum(one["ph"] == "s" for one in events)
    assert launches == sum(one["ph"] == "X" and one["pid"] == DEVICE for one in events) == 11


def test_a_real_trace_of_a_cpu_is_valid(tmp_path: Path) -> None:
    events = events_of(traced_run(), tmp_path)
    assert problems(events) == []
    assert sum(one["ph"] == "X" for one in events) > 100


def test_what_is_not_valid_is_found(tmp_path: Path) -> None:
    """The control: all on one track, half of a flow, a time that is none."""
    events = events_of(two_streams(), tmp_path)
    on_one = [{**one, "tid": 0} if one["pid"] == DEVICE and one["ph"] != "M" else one for one in events]
    assert any("lies across" in one for one in problems(on_one))
    first = next(i for i, one in enumerate(events) if one["ph"] == "f")
    assert any("half a flow" in one for one in problems(events[:first] + events[first + 1 :]))
    late = next(one for one in events if one["ph"] == "X")
    assert any("no time" in one for one in problems([{**late, "ts": -1.0}]))
