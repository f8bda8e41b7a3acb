"""Round numbers at which a picture is marked."""

import math


def round_ticks(low: float, high: float, about: int, whole: bool = False) -> list[float]:
    """Round numbers, `about` so many, of which the first is at most `low` and the last at least `high`."""
    if high - low < 1e-9 * max(1.0, abs(low), abs(high)):  # a flat line, and no room between floats for ticks
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / max(1, about)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    width = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * 0.999)
    if whole:
        width = max(1.0, float(math.ceil(width)))
    first, last = math.floor(low / width + 1e-9), math.ceil(high / width - 1e-9)
    return [round(index * width, 12) for index in range(first, last + 1)]


def tick_label(value: float) -> str:
    """A short form of a tick, a loss or a rate: `1,500`, `0.25`, `11,846`, `1e-05`."""
    if abs(value) < 1e9 and (value == int(value) or abs(value) >= 1000):
        return f"{value:,.0f}"
    return f"{value:.4g}"
