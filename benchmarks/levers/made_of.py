"""What replayed passes are made of, by class of kernels, for `gpu_small_steps.py`.

A kernel of a replay has no operator that launched it: its class is that of the kernel of its name and number in a traced
launched pass.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.levers.bench import Bench
from benchmarks.levers.graph import LORA, Step
from dynotune.measure.evidence import Source
from dynotune.measure.kernel_classes import Surroundings
from dynotune.measure.timelines.rows import works
from dynotune.measure.traces.step import Tracer


class Ran(NamedTuple):
    """A kernel, or on the CPU an operator, in nanoseconds."""

    name: str
    start: int
    end: int
    work: str


def traced(bench: Bench, step: Step, passes: Any) -> list[Ran]:
    """Kernels of both passes in the order of their starts, with the classes that their surroundings give."""
    tracer = Tracer(step.model, (), bench.device)
    with tracer.step(1) as marks:
        with marks.forward(0):
            passes.forward()
        with marks.backward(0):
            passes.backward()
    assert marks.events is not None and marks.where is not None  # noqa: PT018  they come together
    ranks = Surroundings((), bench.shape["vocab_size"], (int(LORA["r"]),), bench.shape["hidden_size"])  # type: ignore[call-overload]
    events, kinds = marks.events, (Source.OPERATOR,) if bench.rehearse else (Source.KERNEL, Source.COPY)
    found = [
        Ran(events.names[i], int(events.start[i]), int(events.end[i]), str(work))
        for i, work in works(events, marks.where, ranks).items()
        if events.kinds[i] in kinds
    ]
    return sorted(found, key=lambda one: one.start)


def with_works_of(replayed: Sequence[Ran], launched: Sequence[Ran]) -> tuple[list[Ran], float]:
    """`replayed` with the works of the launched kernels of the same names in the same order; the share of its time in names
    that have several works."""
    by_name: dict[str, list[str]] = {}
    for one in launched:
        by_name.setdefault(one.name, []).append(one.work)
    at, found = Counter[str](), list[Ran]()
    for one in replayed:
        works_of = by_name.get(one.name, [one.work])
        found.append(one._replace(work=works_of[min(at[one.name], len(works_of) - 1)]))
        at[one.name] += 1
    unsure = sum(one.end - one.start for one in replayed if len(set(by_name.get(one.name, []))) > 1)
    return found, unsure / max(1, sum(one.end - one.start for one in replayed))


def made_of(kernels: Sequence[Ran]) -> dict[str, Any]:
    """In milliseconds: from the first start to the last end, when something ran, when nothing did, how much ran beside other
    work; and by class the kernels' own time, count, and the names that took longest."""
    busy, until = 0, kernels[0].start
    for one in sorted(kernels, key=lambda k: k.start):
        busy += max(0, one.end - max(until, one.start))
        until = max(until, one.end)
    span, own = until - min(k.start for k in kernels), sum(k.end - k.start for k in kernels)
    classes: dict[str, Any] = {}
    for work in dict.fromkeys(k.work for k in kernels):
        mine = [k for k in kernels if k.work == work]
        names = Counter[str]()
        for k in mine:
            names[k.name] += k.end - k.start
        classes[work] = {
            "ms": sum(names.values()) / 1e6, "count": len(mine),
            "names": [
                {"name": name[:100], "ms": ns / 1e6, "count": sum(k.name == name for k in mine)}
                for name, ns in names.most_common(6)
            ],
        }  # fmt: skip
    return {
        "span_ms": span / 1e6, "busy_ms": busy / 1e6, "gaps_ms": (span - busy) / 1e6, "beside_ms": (own - busy) / 1e6,
        "kernels": len(kernels), "classes": dict(sorted(classes.items(), key=lambda item: -item[1]["ms"])),
    }  # fmt: skip
