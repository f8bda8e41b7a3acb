"""Promise: what `--expect` asks is judged by all of an interval; what cannot be judged is not met and says why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.judging.expect import QUANTITIES, Target, judge, parse
from dynotune.cli_measure import NOT_MET, exit_code
from dynotune.errors import ConfigError
from dynotune.results.result import Expectation, Interval, Result
from tests.bench import made


def one(text: str, result: Result) -> Expectation:
    (found,) = judge(parse(text), result)
    return found


@given(
    st.sampled_from(sorted(QUANTITIES)),
    st.sampled_from([">=", "<=", ">", "<"]),
    st.integers(0, 99_999).map(lambda n: n / 1000),
    st.sampled_from(["", " "]),
    st.sampled_from([None, "b.yaml", "rate=2", "a: b"]),
)
def test_what_is_written_is_read(quantity: str, side: str, value: float, gap: str, arm: str | None) -> None:
    term = f"{arm + ':' + gap if arm else ''}{quantity}{gap}{side}{gap}{value}"
    assert parse(term) == (Target(term, quantity, side, value, arm),)


def test_terms_stand_between_commas() -> None:
    speed, peak, fill = parse("speed>=1.2x, peak <= 105%,fill>.9,")
    assert (speed.quantity, speed.value) == ("speed", 1.2)
    assert (peak.side, peak.value) == ("<=", 1.05)
    assert (fill.side, fill.value) == (">", 0.9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty. Give for example 'speed>=1.2, peak<=1.05'"),
        (" , ", "is empty"),
        ("sped>=1.2", "knows no quantity 'sped'. Did you mean `speed`?"),
        ("colour>1", "It knows speed"),
        ("speed", "does not understand 'speed'"),
        ("speed=1.2", "does not understand 'speed=1.2'"),
        ("speed>=fast", "does not understand"),
        ("speed>=-1", "does not understand"),
        ("speed>=1.2 peak<=1.05", "does not understand"),
        ("mfu>=2x", "mfu is no ratio of two arms"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_is(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("speed>=1.05", True),
        ("speed>=1.06", True),
        ("speed>1.06", None),
        ("speed>=1.07", None),
        ("speed>=1.09", False),
        ("speed<=1.2", True),
        ("speed<=1", False),
        ("peak<=0.81", True),
        ("peak<0.81", False),
        ("mfu>=41%", True),
        ("mfu>=42%", False),
        ("fill>=0.9", True),
        ("b.yaml:speed>=1.05", True),
    ],
)
def test_the_interval_is_on_the_right_side_or_the_wrong_one_or_holds_the_target(text: str, met: bool | None) -> None:
    result = made.ab()
    comparison = result.comparisons[0].model_copy(update={"ratio": Interval(low=1.06, estimate=1.07, high=1.08)})
    found = one(text, result.model_copy(update={"comparisons": (comparison,)}))
    assert (found.text, found.met) == (text, met)


def test_an_interval_that_holds_the_target_says_so() -> None:
    assert one("speed>=1.07", made.ab()).observed == "1.07x [1.06, 1.08], in which 1.07 lies"


def test_what_is_not_comparable_or_suspect_meets_nothing() -> None:
    for text in ("speed>=1.01", "speed<=9", "mfu>=1%"):
        found = one(text, made.not_comparable())
        assert (found.observed, found.met) == ("not comparable: label tokens: 812 against 790", None)
        assert one(text, made.suspect()).met is None
    assert one("speed>=1.01", made.suspect()).observed.startswith("SUSPECT: ")


@pytest.mark.parametrize("caveat", ["no noise floor: the budget ended the bench first", ""])
def test_without_a_noise_floor_no_speed_is_reached_or_missed(caveat: str) -> None:
    """Nobody knows what noise leaves of it, and the exit code is that of what is not met. Controls: with a floor it is
    reached; memory and fill are no matter of noise in time."""
    bare = made.ab(noise=None, noise_caveat=caveat)
    for text in ("speed>=1.05", "speed<=1.01"):
        found = one(text, bare)
        assert (found.observed, found.met) == (f"1.07x [1.06, 1.08], {caveat or 'no noise floor'}", None)
        assert exit_code(bare.model_copy(update={"expectations": (found,)})) == NOT_MET
    reached = one("speed>=1.05", made.ab())
    assert reached.met
    assert exit_code(made.ab(expectations=(reached,))) == 0
    assert one("peak<=0.81", bare).met
    assert one("fill>=0.9", bare).met


def test_of_several_arms_one_is_named_or_the_whole_is_meant() -> None:
    assert one("speed>=2", made.attribute()).met
    assert one("fused_lora alone: speed>=1.05", made.attribute()).met
    assert not one("flash_attention alone: speed>=1.05", made.attribute()).met
    found = one("speed>=2", made.sweep())
    assert found.met is None
    assert "name an arm before a colon, of 'per_device_train_batch_size=4'" in found.observed
    assert one("per_device_train_batch_size=16: speed>=2", made.sweep()).met
    with pytest.raises(ConfigError, match=r"This bench has a\.yaml, b\.yaml"):
        one("c.yaml: speed>=2", made.ab())


def test_what_was_not_measured_is_not_met() -> None:
    result = made.ab()
    bare = result.comparisons[0].model_copy(update={"memory_ratio": None, "ratio": None, "why": ""})
    result = result.model_copy(update={"comparisons": (bare,)})
    for text in ("peak<=1", "speed>=1"):
        assert (one(text, result).observed, one(text, result).met) == ("not measured", None)
