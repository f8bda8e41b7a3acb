"""Figures of a bench in words: a ratio with its interval, a gain, a rate, bytes."""

from dynotune.results.result import Interval
from dynotune.show.gains import NO_EFFECT, gain_in_words, ratio_in_words, signed

GIB = 1 << 30

__all__ = ["GIB", "NO_EFFECT", "gain", "gib", "holds_one", "more_gib", "rate", "ratio", "seconds", "share", "small"]


def ratio(interval: Interval) -> str:
    """`1.07x [1.06, 1.08]`."""
    return ratio_in_words(interval.low, interval.estimate, interval.high)


def gain(interval: Interval) -> str:
    """`+6.2 % [5.8, 6.6]`."""
    return gain_in_words(interval.low, interval.estimate, interval.high)


def holds_one(interval: Interval) -> bool:
    """Whether the interval of a ratio leaves open that nothing changed."""
    return interval.low <= 1 <= interval.high


def share(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def rate(value: float | None) -> str:
    """Tokens a second: all digits before the point from 100 on."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value >= 10 else f"{value:.3g}"


def gib(value: float | None) -> str:
    return "" if value is None else f"{value / GIB:.2f}" if value < GIB else f"{value / GIB:.1f}"


def more_gib(difference: float) -> str:
    """`-3.1 GiB`."""
    if abs(difference) < GIB / 2000:
        return "0 GiB"
    return f"{signed(difference / GIB, 1 if abs(difference) >= GIB / 10 else 3)} GiB"


def small(value: float) -> str:
    """A difference or a bound: `4e-7`, `0.0031`, `790`."""
    if abs(value) < 1e9 and value == int(value):
        return f"{value:,.0f}"
    mantissa, _, exponent = f"{value:.2g}".partition("e")
    return mantissa + (f"e{int(exponent)}" if exponent else "")
