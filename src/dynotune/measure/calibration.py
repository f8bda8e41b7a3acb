"""What a device does at most, measured in about two seconds and kept for the machine with its versions.

The best of some tries, each long enough that neither a launch nor a clock counts: matrix products by precision, memory,
copies from the host, and what one small operation costs the host. A floor by these is what this device was seen to do, not
what a data sheet says.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dynotune.cache_folder import cache_folder
from dynotune.model.product_settings import tf32_of

if TYPE_CHECKING:
    import torch

FORMAT = 1

SIDES = {"cuda": (4096, 8192), "cpu": (512, 1024)}
"""Of square matrices."""

BUFFER = {"cuda": 1 << 30, "cpu": 1 << 27}
"""Bytes that are copied: far more than any cache."""

SECONDS = 0.25
"""For each try, at most; the first one is warm-up."""

TIMES = 12
LAUNCHES = 2000


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this device was seen to do at most; None where it was not measured."""

    matmul: Mapping[str, float] = field(default_factory=dict)
    """FLOPs a second of the fastest matrix product, by precision (`bfloat16`, `float32`)."""

    memory: float | None = None
    """Bytes a second, read and written together."""

    to_device: float | None = None
    """Bytes a second from pinned memory of the host."""

    launch: float | None = None
    """Host seconds for one small operation."""

    note: str = ""
    """When they were measured, and in how many seconds."""


def ceilings_of(device: "torch.device", key: str, *, anew: bool = False) -> Ceilings:
    """Kept ones, or measured now and kept. key: of the machine (`speedups.machine.Machine.key`).

    A cache that cannot be read or written is no reason not to have them: they are then measured each time.
    """
    path = cache_folder() / "calibration" / f"{key}{_suffix(device)}.json"
    kept = None if anew else _kept(path)
    if kept is not None:
        return kept
    found = measured(device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.write_text(json.dumps({"format": FORMAT, **asdict(found)}), encoding="utf-8")
        half.replace(path)
    except OSError:
        return found
    return found


def measured(device: "torch.device") -> Ceilings:
    """On `device`, now. Takes a gigabyte of a GPU's memory, or less of the host's, for a moment."""
    import torch

    began = time.perf_counter()
    kind = "cuda" if device.type == "cuda" else "cpu"
    matmul = {}
    for dtype in (torch.bfloat16, torch.float32):
        matmul[str(dtype).removeprefix("torch.")] = best_product(device, dtype)
    buffer = torch.empty(BUFFER[kind] // 2, dtype=torch.uint8, device=device)
    other = torch.empty_like(buffer)
    memory = 2 * buffer.numel() / _fastest(device, lambda: other.copy_(buffer))
    to_device = None
    if kind == "cuda":
        host = torch.empty(1 << 27, dtype=torch.uint8, pin_memory=True)
        into = buffer[: host.numel()]
        to_device = host.numel() / _fastest(device, lambda: into.copy_(host, non_blocking=True))
    launch = _launch(device)
    took = time.perf_counter() - began
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return Ceilings(matmul, memory, to_device, launch, f"measured {when} in {took:.1f} s")


def best_product(device: "torch.device", dtype: "torch.dtype") -> float:
    """FLOPs a second of the fastest of some products: no run multiplies matrices faster than matrices alone are."""
    return max(_product(device, side, dtype) for side in SIDES["cuda" if device.type == "cuda" else "cpu"])


def _product(device: "torch.device", side: int, dtype: "torch.dtype") -> float:
    """FLOPs a second."""
    import torch

    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * side**3 / _fastest(device, lambda: torch.mm(a, b, out=out))


def _fastest(device: "torch.device", run: Callable[[], object]) -> float:
    """Seconds of the fastest call, by the device's clock."""
    import torch

    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(TIMES + 1)]
        marks[0].record()
        for mark in marks[1:]:
            run()
            mark.record()
        torch.cuda.synchronize(device)
        return float(min(a.elapsed_time(b) for a, b in pairwise(marks))) / 1e3
    took, began = list[float](), time.perf_counter()
    while len(took) < TIMES and (not took or time.perf_counter() - began < SECONDS):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return min(took)


def _launch(device: "torch.device") -> float:
    import torch

    x = torch.zeros(1, device=device)
    for _ in range(100):
        x.add_(1)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(LAUNCHES):
        x.add_(1)
    took = time.perf_counter() - began
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return took / LAUNCHES


def _suffix(device: "torch.device") -> str:
    """What besides the machine changes them: threads of the CPU, and whether float32 products may be TF32."""
    import torch

    if device.type != "cuda":
        return f"-{torch.get_num_threads()}-threads"
    return "-tf32" if tf32_of(device) else ""


def _kept(path: Path) -> Ceilings | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            return None
        matmul = {str(name): float(rate) for name, rate in body["matmul"].items()}
        rates = {name: None if body[name] is None else float(body[name]) for name in ("memory", "to_device", "launch")}
        return Ceilings(matmul, note=str(body["note"]), **rates)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # another version's, or damaged: it is measured again
