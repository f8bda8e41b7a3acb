"""Where a part of `gpu_levers.py` runs, and what it measures by."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.shapes import SHAPES

TINY = {
    "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
}  # fmt: skip
Row = dict[str, Any]
"""part, case, ok, errors, floor_ms, and ways: by name what `Bench.ms` found."""

FLOPS, BYTES = 790e12, 4.3e12
"""A second, at the best that this card was seen to do."""


class Bench:
    """Device, shapes, clock."""

    def __init__(self, rehearse: bool, deadline: float) -> None:
        self.rehearse, self.deadline = rehearse, deadline
        self.device = torch.device("cpu" if rehearse else "cuda")
        self.low = torch.float32 if rehearse else torch.bfloat16
        self.shape = TINY if rehearse else SHAPES["qwen2.5-7b"]

    def random(self, *shape: int, std: float = 1.0) -> Tensor:
        return (torch.randn(*shape, device=self.device) * std).to(self.low)

    def ms(self, call: Callable[[], Any], repeats: int = 12) -> dict[str, float]:
        """Median of the device's time a call, the host's until it is free, and the spread."""
        if self.rehearse:
            call()
            return {"ms": 0.0, "host_ms": 0.0, "least": 0.0, "most": 0.0}
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        times, host = [], []
        for _ in range(repeats):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            began = time.perf_counter()
            call()
            host.append(1e3 * (time.perf_counter() - began))
            events[1].record()
            torch.cuda.synchronize()
            times.append(events[0].elapsed_time(events[1]))
        middle = statistics.median(times)
        return {"ms": middle, "host_ms": statistics.median(host), "least": min(times), "most": max(times)}

    def late(self) -> bool:
        return time.monotonic() > self.deadline


def off(found: Tensor, right: Tensor) -> float:
    return float((found.float() - right.float()).norm() / right.float().norm().clamp_min(1e-30))
