"""What samples of a machine say of a stretch of time. Pure arithmetic; `sampler.py` says what a sample holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.measure.beside.sampler import REASONS

SEEN_SHARE = 0.1
"""Of the samples of a window in which a reason for lower clocks must stand to be said: the power cap comes and goes."""


@dataclass(frozen=True, slots=True)
class MachineSeen:
    """A stretch of time. None: it cannot be read here."""

    samples: int = 0
    sm_mhz: float | None = None
    """Mean, as are the other figures that say nothing else."""

    power_watts: float | None = None
    celsius: float | None = None
    celsius_max: float | None = None
    utilisation_mean: float | None = None
    utilisation_p95: float | None = None
    utilisation_low: float | None = None
    """Of the samples, the share in which the GPU was busy for less than half of the time."""

    training_samples: int = 0
    """Of those, the ones that tell of training alone."""

    training_utilisation: float | None = None
    """Mean of these."""

    training_low: float | None = None
    """As `utilisation_low`, of these."""

    throttled: tuple[str, ...] = ()
    """Reasons, by their names; those that are always there, such as the power cap under full load, are among them."""

    memory_used: int | None = None
    """Most bytes of the device that all processes together held."""

    other_processes: int = 0
    steal: float | None = None
    """Share of the processors' time that the host gave to others."""

    rss: int | None = None
    """Most bytes of the watched process that were resident."""

    workers_rss: int | None = None
    """The same of the processes that it started, all together; pages that they share count in each."""

    workers: int | None = None
    cpu: float | None = None
    """Processors that the watched process and those it started kept busy, as a number: 2.5 are two and a half."""

    host_available: int | None = None
    """Fewest bytes of host memory that were left."""


LOOKS_BACK = 1.0
"""Seconds: a sample of a GPU's use tells of a sixth of a second to a second ahead of it, by its model (NVML)."""


def seen(
    inside: Sequence[dict[str, Any]],
    before: Sequence[dict[str, Any]],
    others: Callable[[Sequence[int]], int],
    trained: Callable[[float, float], bool] = lambda begin, end: True,
) -> MachineSeen:
    """inside: samples of the stretch, oldest first. before: the last one ahead of it, where there is one. others: how many
    of these processes on the GPU are not expected there. trained: whether all of a time was training."""
    if not inside:
        return MachineSeen()
    spanned = [*before, *inside]
    busy = _values(inside, "utilisation")
    within = [one for one in inside if trained(one["at"] - LOOKS_BACK, one["at"])]
    trains = _values(within, "utilisation")
    return MachineSeen(
        samples=len(inside),
        sm_mhz=_mean(inside, "sm_mhz"),
        power_watts=_mean(inside, "power_watts"),
        celsius=_mean(inside, "celsius"),
        celsius_max=max(_values(inside, "celsius"), default=None),
        utilisation_mean=_mean(inside, "utilisation"),
        utilisation_p95=quantile(busy, 0.95) if busy else None,
        utilisation_low=_low(busy),
        training_samples=len(trains),
        training_utilisation=_mean(within, "utilisation"),
        training_low=_low(trains),
        throttled=_throttled(inside),
        memory_used=max(_values(inside, "memory_used"), default=None),
        other_processes=max(others(sample.get("processes", ())) for sample in inside),
        steal=_share(spanned, "steal", "processors"),
        rss=max(_values(inside, "rss"), default=None),
        workers_rss=max(_values(inside, "workers_rss"), default=None),
        workers=max(_values(inside, "workers"), default=None),
        cpu=_share([one for one in spanned if "busy" in one], "busy", "at"),
        host_available=min(_values(inside, "host_available"), default=None),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """By a straight line between the two nearest, as numpy's, which takes a tenth of a millisecond for a handful."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def _low(busy: Sequence[float]) -> float | None:
    return sum(one < 0.5 for one in busy) / len(busy) if busy else None


def _values(samples: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [sample[name] for sample in samples if name in sample]


def _mean(samples: Sequence[dict[str, Any]], name: str) -> float | None:
    values = _values(samples, name)
    return sum(values) / len(values) if values else None


def _throttled(samples: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    masks = [sample["reasons"] for sample in samples if "reasons" in sample]
    return tuple(
        word
        for bit, word in REASONS.items()
        if masks and sum(bool(mask & bit) for mask in masks) > SEEN_SHARE * len(masks)
    )


def _share(samples: Sequence[dict[str, Any]], of: str, over: str) -> float | None:
    """How much one sum grew while another did, from the first sample to the last. None without time between them. A worker
    that has ended takes its seconds away: not below zero."""
    passed = samples[-1][over] - samples[0][over] if samples else 0.0
    return max(0.0, float((samples[-1][of] - samples[0][of]) / passed)) if passed > 0 else None
