"""Records of runs that never were: time lines of a GPU and its host, made up event by event."""

from dataclasses import dataclass, field, replace
from typing import Any

from dynotune.measure.traces.attribution import attribute
from dynotune.measure.traces.events import read
from dynotune.profile.records.record import Ceilings, Environment, ModelFacts, Record, TimedStep, Traced, WeightGroup
from tests.measure.kineto import MAIN, Raw, mark

US = 1000
"""Nanoseconds in a microsecond: times of events are given in the latter."""

GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
BF16 = ("c10::BFloat16", "c10::BFloat16")
FP32 = ("float", "float")
PRODUCT = ((4096, 4096), (4096, 4096))

CEILINGS = Ceilings(
    matmul={"bfloat16": 700e12, "float32": 350e12}, memory=4e12, to_device=50e9, launch=4e-6, note="made up"
)


@dataclass
class Step:
    """One traced step, made of kernels and of what the host does. Times are microseconds from its beginning."""

    microseconds: int
    raw: list[Raw] = field(default_factory=list)
    number: int = 0

    def _next(self) -> int:
        self.number += 1
        return self.number

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        operator: str = "aten::mul",
        shapes: tuple[tuple[int, ...], ...] = (),
        dtypes: tuple[str, ...] = BF16,
        launched_at: int | None = None,
    ) -> "Step":
        """A kernel on the device and the operator that launched it, by default just before."""
        at = (start if launched_at is None else launched_at) * US
        one, call = self._next(), self._next() + 100_000
        self.raw += [
            Raw(operator, at, 2, number=one, arguments=shapes, types=dtypes[: len(shapes)]),
            Raw("cudaLaunchKernel", at, 1, number=call, linked=one),
            Raw(name, start * US, (end - start) * US, number=call, linked=one, on_device=True),
        ]
        return self

    def host(self, name: str, start: int, end: int, marked: bool = False, shapes: Any = (), dtypes: Any = ()) -> "Step":
        """An operator, runtime call or range of the host."""
        self.raw.append(
            Raw(
                name, start * US, (end - start) * US, MAIN, number=self._next(), marked=marked, arguments=shapes,
                types=dtypes,
            )
        )  # fmt: skip
        return self

    def traced(self, **more: Any) -> Traced:
        events = read([mark("step", 0, self.microseconds * US), *sorted(self.raw, key=lambda one: one.begin)])
        return Traced(1, events, attribute(events), **more)


def busy(microseconds: int = 1000, kernels: int = 10, dtypes: tuple[str, ...] = BF16) -> Step:
    """A step in which the device always multiplies: launches run ahead of it."""
    step = Step(microseconds)
    each = microseconds // kernels
    for i in range(kernels):
        step.kernel(GEMM, i * each, (i + 1) * each, "aten::mm", PRODUCT, dtypes, launched_at=i)
    return step


def timed(seconds: float, steps: int = 20, **more: Any) -> tuple[TimedStep, ...]:
    return tuple(TimedStep(i + 1, seconds, **more) for i in range(steps))


def model(device: str = "cuda:0", **more: Any) -> ModelFacts:
    weights = (WeightGroup(device, "bfloat16", False, 7_000_000_000), WeightGroup(device, "float32", True, 40_000_000))
    facts = ModelFacts(
        "Qwen2ForCausalLM", weights, "bfloat16", layers=28, hidden=3584, heads=28, kv_heads=4, head_dim=128,
        vocabulary=152064, adapter_ranks=(16,), head_places=("lm_head",), attention="fa3",
    )  # fmt: skip
    return replace(facts, **more)


def record(step: Step | None = None, **more: Any) -> Record:
    """A run on a GPU whose steps took as long as the traced one, and in which nothing is wrong."""
    step = step or busy()
    seconds = step.microseconds / 1e6
    tokens = {"real_tokens": 950, "processed_tokens": 1000}
    given: dict[str, Any] = {
        "trainer": "dynotune",
        "timed": timed(seconds, data_wait=0.0, **tokens),
        "traced": (step.traced(**tokens),),
        "environment": Environment("cuda", {"device": "NVIDIA H200"}, gpus=1, cores=16, threads=16, loader_workers=1),
        "model": model(),
        "ceilings": CEILINGS,
        "optimizer": "AdamW (fused)",
        "measuring": "dynotune bench --config x.yaml --set {change}",
    }
    return Record(**{**given, **more})
