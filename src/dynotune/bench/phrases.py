"""Figures of a bench in words: a ratio with its interval, a gain, a rate, bytes. Digits that the spread does not bear are
not printed."""

from dynotune.bench.result import Interval

GIB = 1 << 30

NO_EFFECT = "no measured effect"


def ratio(interval: Interval) -> str:
    """`1.07x [1.06, 1.08]`."""
    digits = 2 if interval.estimate >= 2 or interval.high - interval.low >= 0.02 else 3
    low, estimate, high = (f"{value:.{digits}f}" for value in (interval.low, interval.estimate, interval.high))
    return f"{estimate}x [{low}, {high}]"


def gain(interval: Interval) -> str:
    """`+6.2 % [5.8, 6.6]`; from twice as fast on the ratio, which is easier to read there."""
    if interval.estimate >= 2:
        return ratio(interval)
    digits = 0 if interval.high - interval.low >= 0.06 else 1
    low, estimate, high = (100 * (value - 1) for value in (interval.low, interval.estimate, interval.high))
    return f"{_signed(estimate, digits)} % [{_plain(low, digits)}, {_plain(high, digits)}]"


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
    return f"{_signed(difference / GIB, 1 if abs(difference) >= GIB / 10 else 3)} GiB"


def small(value: float) -> str:
    """A difference or a bound: `4e-7`, `0.0031`, `790`."""
    if abs(value) < 1e9 and value == int(value):
        return f"{value:,.0f}"
    mantissa, _, exponent = f"{value:.2g}".partition("e")
    return mantissa + (f"e{int(exponent)}" if exponent else "")


def _signed(value: float, digits: int) -> str:
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text


def _plain(value: float, digits: int) -> str:
    return _signed(value, digits).removeprefix("+")
