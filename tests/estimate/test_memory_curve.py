"""Promise: what there was to choose from is shown with what is measured told from what is estimated, one line marked."""

from dynotune.estimate.fastest import Measured, Question, Setting
from dynotune.estimate.memory_curve import curve, lines

GIB = 1 << 30


def asked() -> Question:
    costs = {"none": 1.0, "full": 1.33}
    return Question(
        20 * GIB, lambda policy, tokens: tokens * (2 << 20 if policy == "none" else 1 << 18), costs, 512, 16_384
    )


def test_measured_and_estimated_are_told_apart() -> None:
    of = asked()
    of.tried[Setting("none", 16_384)] = None
    chosen = Setting("none", 8192)
    of.tried[chosen] = Measured(16 * GIB, 17 * GIB, 0.5)
    points = curve(of, chosen)
    by = {(p.policy, p.tokens): p for p in points}
    assert [p for p in points if p.chosen] == [by["none", 8192]]
    assert by["none", 8192].tokens_per_second == 8192 / 0.5
    assert {key for key, p in by.items() if p.measured} == {("none", 8192), ("none", 16_384)}
    out = by["none", 16_384]
    assert (out.bytes, out.fits) == (None, False)
    assert by["full", 8192].bytes == 8192 << 18
    assert 0.7 < by["full", 8192].tokens_per_second / by["none", 8192].tokens_per_second < 0.8  # type: ignore[operator]
    text = "\n".join(lines(points, of.free))
    assert text.count("<- chosen") == 1
    assert text.count("measured") == 2
    assert " out " in text


def test_where_the_device_is_not_known_nothing_is_said_to_fit() -> None:
    points = curve(asked(), None, known=False)
    assert {p.fits for p in points} == {None}
    assert "?" in lines(points, None)[-1]
    assert min(p.relative_time for p in points) == 1.0
