"""Promise: which kernel comes first where several can stand is read off measurements of this GPU, and nothing else."""

import json
from typing import Any

import pytest

from dynotune.speedups import measured
from dynotune.speedups.measured import Measurement, faster, in_words, measurements, nearest, parsed
from dynotune.speedups.registry import speedups

H200 = "NVIDIA H200"


def one(slot: str = "rms_norm", **other: Any) -> Measurement:
    given: dict[str, Any] = {
        "gpu": "NVIDIA H200*", "capability": "9.0", "slot": slot, "hidden": 3584, "tokens": 16384, "trained": False,
        "ms": {"a": 1.0, "b": 1.5}, "versions": {"torch": "2.11"}, "date": "2026-01-01", "source": "results/x.json",
    }  # fmt: skip
    return Measurement(**{**given, **other})


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[Measurement]:
    rows: list[Measurement] = []
    monkeypatch.setattr(measured, "measurements", lambda: rows)
    return rows


def test_what_is_shipped_is_whole_and_of_speed_ups_that_there_are() -> None:
    known = speedups()
    for row in measurements():
        assert {known[name].slot for name in row.ms if name != "plain"} == {row.slot}
        assert all(ms > 0 for ms in row.ms.values())
        assert row.source.startswith("benchmarks/results/")
        assert row.versions
        assert row.date


def test_nothing_measured_is_nothing(table: list[Measurement]) -> None:
    assert nearest("rms_norm", H200, "9.0", 3584, False) is None
    assert not faster("a", "b", None)
    assert in_words("a", "b", None) == "not measured beside b on this GPU"


def test_another_gpu_capability_slot_or_training_is_not_this_one(table: list[Measurement]) -> None:
    table.append(one())
    assert nearest("rms_norm", H200, "9.0", 3584, False) == table[0]
    assert nearest("rms_norm", "NVIDIA H200 NVL", "9.0", 3584, False) == table[0]
    assert nearest("rms_norm", "NVIDIA H100", "9.0", 3584, False) is None
    assert nearest("rms_norm", H200, "10.0", 3584, False) is None
    assert nearest("rotary", H200, "9.0", 3584, False) is None
    assert nearest("rms_norm", H200, "9.0", 3584, True) is None


def test_the_nearest_size_and_the_largest_micro_batch_decide(table: list[Measurement]) -> None:
    table += [one(hidden=896), one(tokens=2048), one()]
    for hidden, row in ((4096, 2), (2048, 2), (1024, 0), (600, 0)):
        assert nearest("rms_norm", H200, "9.0", hidden, False) == table[row]
    assert nearest("rms_norm", H200, "9.0", 16384, False) is None  # too far from all of them
    assert nearest("rms_norm", H200, "9.0", 256, False) is None


def test_a_few_percent_are_nothing() -> None:
    assert faster("a", "b", one())
    assert not faster("b", "a", one())
    close = one(ms={"a": 1.0, "b": 1.02})
    assert not faster("a", "b", close)
    assert not faster("a", "unmeasured", one())
    assert in_words("a", "b", close).startswith("as fast as b")
    assert (
        in_words("b", "a", one())
        == "1.50 times the time of a by itself at hidden size 3584 on NVIDIA H200 (2026-01-01)"
    )


def test_a_file_of_another_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="format 2"):
        parsed(json.dumps({"format": 2, "measurements": []}))
    with pytest.raises(TypeError):
        parsed(json.dumps({"format": 1, "measurements": [{"gpu": "x"}]}))
