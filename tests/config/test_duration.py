"""Promise: `max_time` is read as its author meant it, or refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune import SFTConfig
from dynotune.config.reading.duration import seconds_of
from dynotune.errors import ConfigError

H = 3600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7200", 2 * H), ("1.5e3", 1500), ("5h", 5 * H), ("90m", 1.5 * H), ("90 min", 1.5 * H), ("1d12h", 36 * H),
        ("1h30m15s", 5415), ("0.5h", 0.5 * H), ("5H", 5 * H),
        ("90:00", 1.5 * H), ("02:00:00", 2 * H), ("1-2", 26 * H), ("1-02:30", 26.5 * H), ("1-02:00:30", 26 * H + 30),
        ("00:12:00:00", 12 * H),
    ],
)  # fmt: skip
def test_forms(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "h", "x", "5x", "-5", "0", "0h", "nan", "inf", "5h3d", "1-2-3", "1-1:2:3:4", "1:2:3:4:5", "5 hours of it"],
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Write"):
        seconds_of(text)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_slurm_and_units_agree(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not total:
        return
    assert seconds_of(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == total
    assert seconds_of(f"{days}d{hours}h{minutes}m{seconds}s") == total
    assert seconds_of(str(total)) == total


@given(st.text(max_size=12))
def test_any_text_is_a_time_or_an_error(text: str) -> None:
    try:
        seconds = seconds_of(text)
    except ValueError as error:
        seconds, said = 1.0, str(error)
    else:
        said = "Write"
    assert 0 < seconds < math.inf
    assert "Write" in said


@pytest.mark.parametrize(("value", "seconds"), [(90, 90), ("1-00:00:00", 24 * H), (None, None)])
def test_the_key(value: object, seconds: float | None) -> None:
    assert SFTConfig(max_time=value).max_seconds == seconds


@pytest.mark.parametrize("value", [True, "soon", 0, -1, "5 h 3 d"])
def test_the_key_refuses(value: object) -> None:
    with pytest.raises(ConfigError, match="max_time"):
        SFTConfig(max_time=value)
