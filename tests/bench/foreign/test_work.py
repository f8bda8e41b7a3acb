"""Promise: commands that did other work have no speed beside each other, and what they did differently is in words."""

from typing import Any

import pytest

from dynotune.bench.foreign.conclude import conclude
from dynotune.bench.foreign.measure import Measured
from dynotune.bench.showing.terminal import screen
from dynotune.results.result import Result, Verdict
from tests.bench.foreign.arms import DEVICE, arm, asked_of, block


def result(mine: dict[str, Any], theirs: dict[str, Any], other_work: bool = False, **found: Any) -> Result:
    """Of an arm `b` that reported `mine`, and `a` that reported `theirs`."""
    asked = asked_of(arm("a"), arm("b"), other_work=other_work)
    seen = Measured(names=["a", "b"], asked=asked, device=DEVICE, **found)
    for pair in range(4):
        seen.blocks += [block("a", pair, **theirs), block("b", pair, **{"seconds": 8.0 + 0.01 * pair, **mine})]
    seen.blocks += [block("a", 0, of_noise=True, **theirs) for _ in range(2)]
    return conclude(seen, (), machine={"device": "a CPU"}, commit=None)


def shown(one: Result) -> str:
    return " ".join("\n".join(line.plain for line in screen(one, 140, [])).split())


def test_the_same_work_has_a_speed() -> None:
    one = result({"real_tokens": 1001, "processed_tokens": 1001}, {})
    assert one.comparisons[0].verdict is Verdict.FASTER
    said = shown(one)
    assert "not checked: foreign commands" in said
    assert "b trains 1.2" in said
    assert "whether the updates are the same was not checked" in said


@pytest.mark.parametrize("counts_more", ["a", "b"])
def test_other_tokens_are_not_comparable(counts_more: str) -> None:
    more: dict[str, Any] = {"real_tokens": 1310}
    one = result(more, {}) if counts_more == "b" else result({}, more)
    fewer = "a" if counts_more == "b" else "b"
    assert one.comparisons[0].verdict is Verdict.NOT_COMPARABLE
    assert one.comparisons[0].why == (
        f"{counts_more} counted 1.31 times the tokens of {fewer}: one of them counts padding, or they saw other documents"
    )
    assert one.comparisons[0].ratio is None
    assert "1.25x" not in shown(one)


def test_a_padded_count_is_named() -> None:
    one = result({"real_tokens": 1310}, {"processed_tokens": 1310})
    assert one.comparisons[0].why.endswith("as many as a processed with its padding: it counts padding")


def test_one_pair_of_other_documents_is_enough() -> None:
    asked = asked_of(arm("a"), arm("b"))
    seen = Measured(names=["a", "b"], asked=asked, device=DEVICE)
    for pair in range(4):
        seen.blocks += [block("a", pair), block("b", pair, real_tokens=1002 if pair == 3 else 1000)]
    one = conclude(seen, (), machine={"device": "a CPU"}, commit=None)
    assert "1.0020 times the tokens" in one.comparisons[0].why


def test_other_work_that_is_meant_is_noted() -> None:
    one = result({"real_tokens": 1310}, {}, other_work=True)
    assert one.comparisons[0].verdict is Verdict.FASTER
    assert any("1.31 times" in text and "--other_work" in text for text in one.differences)


def test_label_tokens_and_devices_are_work_too() -> None:
    one = result({"label_tokens": 900}, {"label_tokens": 450})
    assert one.comparisons[0].why == "b counted 2.00 times the label tokens of a"
    one = result({}, {}, devices_of={"a": 1, "b": 2})
    assert one.comparisons[0].why == "b used 2 devices, a 1"
    assert result({"label_tokens": 900}, {}).comparisons[0].verdict is Verdict.FASTER  # a did not tell


def test_fewer_updates_and_another_loss_are_said() -> None:
    one = result({"steps": 10, "loss": 1.30}, {"steps": 155, "loss": 1.25})
    assert "b makes 15.50 times fewer updates than a (10 for 155)." in one.differences
    assert "b ends at a loss of 1.3, a at 1.25: 3.8% apart." in one.differences
    same = result({"steps": 10, "loss": 1.251}, {"steps": 10, "loss": 1.25})
    assert not any("updates" in text or "loss" in text for text in same.differences)


def test_a_start_that_counts_as_training_is_named() -> None:
    said = "The seconds of a are the whole wall time: start-up and compilation count as training."
    assert said in result({}, {"seconds": 19.97}).notes
    assert said not in result({}, {"seconds": 19.0}).notes
    assert not any("whole wall time" in text for text in result({}, {"seconds": 0.3, "wall_seconds": 0.6}).notes)


def test_a_start_inside_of_the_reported_seconds_is_named() -> None:
    """The usual case: a clock that begins behind the loading and before the first step, which compiles. Its command is
    slower by the bench and faster by the step."""
    theirs = {"seconds": 4.0, "steps": 40, "wall_seconds": 9.0}
    one = result({"steps": 40, "wall_seconds": 14.0}, theirs, usual={"a": 0.099, "b": 0.1})
    said = [text for text in one.notes if "count as training" in text]
    assert said == [
        "Of the 8.0 s of b, its 40 steps take about 4.0, as they were watched: 4.0 s of start or end (loading, compiling,"
        " first steps, saving) count as training."
    ]
    assert not any("count as training" in text for text in result({}, theirs, usual={"a": 0.095}).notes), "a tenth"
    assert not any("count as training" in text for text in result({"steps": 40}, theirs).notes), "steps were not seen"


def test_peaks_that_were_reported_are_compared() -> None:
    one = result({}, {}, peaks={"a": 4 << 30, "b": 3 << 30})
    assert (one.comparisons[0].memory, one.comparisons[0].memory_ratio) == ("LESS MEMORY", 0.75)
    assert "4.0" in shown(one)


def test_documents_that_are_drawn_anew_are_noted() -> None:
    asked = asked_of(arm("a"), arm("b"), other_work=True)
    seen = Measured(names=["a", "b"], asked=asked, device=DEVICE)
    seen.blocks += [block("a", 0, of_noise=True), block("a", 0, of_noise=True, real_tokens=1100)]
    seen.blocks += [block(name, pair) for pair in range(2) for name in "ab"]
    assert any(
        "draws its documents anew" in text for text in conclude(seen, (), machine=DEVICE["machine"], commit=None).notes
    )
