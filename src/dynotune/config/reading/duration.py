"""Lengths of time as people and schedulers write them."""

import math
import re

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"\d+(?:\.\d+)?"
_WORDS = re.compile(
    "".join(rf"(?:(?P<{unit}>{_NUMBER}){end})?" for unit, end in zip("dhms", ("d", "h", "m(?:in)?", "s"), strict=True))
)
_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,3})")

FORMS = "seconds (`7200`), units (`5h`, `90m`, `1d12h`, `30s`), or Slurm's time (`02:00:00`, `1-02:00:00`, `90:00`)"


def seconds_of(text: str) -> float:
    """Seconds of a length of time.

    A number is seconds. Units go from large to small. With colons it reads as Slurm's `--time` and Lightning's `max_time`:
    `m:s`, `h:m:s`, `d:h:m:s`, `d-h`, `d-h:m`, `d-h:m:s`.

    Raises:
        ValueError: anything else, and what is not above zero.
    """
    seconds = _read(text.strip().lower().replace(" ", ""))
    if seconds is None:
        raise ValueError(f"{text!r} is not a length of time. Write {FORMS}.")
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{text!r} leaves no time at all. Write a length above zero: {FORMS}.")
    return seconds


def _read(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    if text and (words := _WORDS.fullmatch(text)):
        return sum(float(number) * _UNITS[unit] for unit, number in words.groupdict().items() if number)
    if clock := _CLOCK.fullmatch(text):
        parts = [float(part) for part in clock["parts"].split(":")]
        if clock["days"] is not None:
            # After days, Slurm's parts begin with hours.
            return None if len(parts) > 3 else _sum([float(clock["days"]), *parts, *[0.0] * (3 - len(parts))])
        return _sum([*[0.0] * (4 - len(parts)), *parts])
    return None


def _sum(parts: list[float]) -> float:
    """Days, hours, minutes, seconds."""
    return sum(part * unit for part, unit in zip(parts, _UNITS.values(), strict=True))
