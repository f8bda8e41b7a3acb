"""Evidence made up from a few words."""

from typing import Any

from dynotune.measure.evidence import Evidence, Phase, Seen, Source


def kernel(name: str, phase: Phase, place: str = "", micro_batch: int = 0, **more: Any) -> Seen:
    return Seen(name, Source.KERNEL, phase, place, micro_batch, **more)


def operator(name: str, phase: Phase, place: str = "", micro_batch: int = 0, **more: Any) -> Seen:
    return Seen(name, Source.OPERATOR, phase, place, micro_batch, **more)


def evidence(*seen: Seen, device: str = "cuda", **more: Any) -> Evidence:
    """Of one micro-batch, with everything watched that events are at, unless said otherwise."""
    made: dict[str, Any] = {
        "step": 2,
        "has_device_events": any(one.source is Source.KERNEL for one in seen),
        "micro_batches": 1,
        "watched": frozenset(one.place for one in seen),
    }
    return Evidence(device=device, seen=tuple(seen), **{**made, **more})
