"""Promise: a command that reports nothing is counted from its own batches, one that counts padding is named, and what cannot
be known is no claim."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.bench.asking.schedule import Rules
from dynotune.bench.foreign.conclude import conclude
from dynotune.bench.foreign.counting import WARM_UP, counts_padding, usual_step
from dynotune.bench.foreign.measure import Command, Measured, Player, measure
from dynotune.bench.foreign.protocol import Told
from dynotune.bench.running.guard import Guard
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.errors import DataError
from dynotune.results.result import Result, Verdict
from tests.bench.foreign.arms import DEVICE, arm, asked_of, block
from tests.profile.made import record, timed

SEEN = record(timed=timed(0.5, steps=40, real_tokens=700, processed_tokens=1000))


@pytest.mark.parametrize(
    ("tokens", "steps", "padding"),
    [
        (28_000, 40, False),
        (28_020, 40, False),  # the last tokens of documents
        (40_000, 40, True),
        (14_000, 20, False),  # of half of its steps
        (20_000, 20, True),
        (29_900, 42, False),  # the first two steps were not seen, and may have been full
        (42_000, 42, True),
        (900, 40, False),  # of the tokens that carry loss: other arms will differ
    ],
)
def test_more_than_the_real_tokens_of_so_many_steps_is_padding(tokens: int, steps: int, padding: bool) -> None:
    assert bool(counts_padding(Told(tokens, 1.0, steps=steps), SEEN)) is padding


def test_where_steps_differ_the_fullest_ones_may_be_meant() -> None:
    """Control: one token a step more than these hold is not there to be counted."""
    full = replace(SEEN, timed=(*SEEN.timed[:20], *timed(0.5, steps=20, real_tokens=1000, processed_tokens=1000)))
    assert not counts_padding(Told(20_000, 1.0, steps=20), full)
    assert "at most 20,000 real ones, 20,000 with padding" in counts_padding(Told(21_000, 1.0, steps=20), full)


@given(st.integers(0, 4), st.lists(st.floats(0.9, 1.1), min_size=6, max_size=40))
def test_a_usual_step_is_one_behind_those_of_a_start(slow: int, rest: list[float]) -> None:
    steps = [3.0] * min(slow, len(rest) - 1) + rest
    usual = usual_step(record(timed=tuple(one for s in steps for one in timed(s, steps=1))))
    assert usual == pytest.approx(fmean(rest))


def test_of_few_steps_none_is_usual() -> None:
    assert usual_step(record(timed=timed(0.5, steps=4))) is None
    assert usual_step(record(timed=())) is None


def test_what_cannot_be_known_is_said() -> None:
    with pytest.raises(DataError, match="reports no `steps`"):
        counts_padding(Told(40_000, 1.0), SEEN)
    with pytest.raises(DataError, match="do not tell which tokens are padding"):
        counts_padding(Told(40_000, 1.0, steps=40), record(timed=timed(0.5, steps=40)))


def seen(**found: object) -> Result:
    one = Measured(names=["a", "b"], asked=asked_of(arm("a"), arm("b")), device=DEVICE, **found)  # type: ignore[arg-type]
    one.blocks += [block(name, pair, seconds=10.0 if name == "a" else 8.0) for pair in range(4) for name in "ab"]
    one.blocks += [block("a", 0, of_noise=True) for _ in range(2)]
    return conclude(one, (), machine={"device": "a CPU"}, commit=None)


def test_a_count_of_padding_has_no_speed_though_both_count_alike() -> None:
    fair = seen(padding={"a": "", "b": ""}, unchecked={})
    assert fair.comparisons[0].verdict is Verdict.FASTER
    one = seen(padding={"a": "", "b": "it reported 1,000 tokens"}).comparisons[0]
    assert (one.verdict, one.ratio) == (Verdict.NOT_COMPARABLE, None)
    assert one.why == "tokens/s of b counts padding: it reported 1,000 tokens"
    assert "Whether b counts padding is not known: it sleeps." in seen(unchecked={"b": "it sleeps"}).notes


def script(name: str, **asked: object) -> Command:
    words = (sys.executable, str(Path(__file__).with_name("padded.py")), json.dumps(asked))
    return Command(name, words, Path.cwd(), facts={"command": name})


def looked_at(folder: Path, **asked: object) -> Measured:
    """One run, before any that counts."""
    found = Measured(names=["a"], asked=asked_of(script("a", **asked)), device=DEVICE)
    folder.mkdir()
    Player(found, Guard(), folder, lambda text: None).run("a", first=True)
    return found


@pytest.mark.long
def test_scripts_that_report_nothing_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(ArmFailedError, match=r"reported no tokens and seconds\. .*--steps 20"):
        looked_at(tmp_path / "looked at", steps=3)
    arms = script("a", steps=4000, width=1024), script("b", steps=4000)
    asked = replace(asked_of(*arms), steps=7, rules=Rules(pairs=2, most_pairs=2, noise_pairs=0))
    found = measure(asked, DEVICE, tmp_path, lambda text: None)
    one = conclude(found, (), machine={"device": "a CPU"}, commit=None)
    for each in one.arms:
        assert {(b.steps, b.real_tokens, b.processed_tokens) for b in each.counted} == {(7, 7 * 64, 7 * 128)}
        assert each.fill == 0.5
    assert one.comparisons[0].ratio is not None
    assert one.comparisons[0].ratio.estimate > 1, "a step of the other multiplies matrices 256 times as large"
    assert any(f"of 7 steps behind {WARM_UP + 1}" in note for note in one.notes)


@pytest.mark.long
def test_a_script_that_reports_its_padding_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the same that reports real tokens."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    padded = looked_at(tmp_path / "padded", reports="padded", steps=40).padding["a"]
    assert padded.startswith("it reported 5,120 tokens of 40 steps, whose batches hold at most 2,688 real ones")
    assert looked_at(tmp_path / "real", reports="real", steps=40).padding == {"a": ""}
