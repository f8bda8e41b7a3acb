"""Promise: a bench that its budget ends has its noise floor all the same, or says that it has none, or one of a single pair;
without one nobody is called faster."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.asking.schedule import NOISE_RESERVE, Round, Rules, has_room_for_noise
from dynotune.bench.foreign.conclude import conclude
from dynotune.bench.foreign.measure import Measured
from dynotune.bench.judging.comparison import caveat_of_noise, comparison, noise_of
from dynotune.bench.judging.conclude import interactions
from dynotune.bench.judging.verdict import judge
from dynotune.bench.running.tally import Tally
from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.page import bench_page
from dynotune.bench.showing.terminal import LINES, screen
from dynotune.bench.statistics import estimate
from dynotune.results.result import Block, Result, Verdict
from tests.bench import made
from tests.bench.foreign import arms as commands
from tests.bench.running.test_rounds import Player, played

PAIRING = Pairing("b", "a", "b", "whole")
BUDGET = "the budget ended the bench first"


class Costly(Player):
    """Pairs that are level; a block of the first arm against itself costs its part of a budget, every other ten seconds."""

    def __init__(self, of_noise: float) -> None:
        super().__init__({"a": 100.0, "b": 125.0})
        self.of_noise, self.seconds = of_noise, 0.0

    def block(self, name: str, round_: Round) -> Block:
        self.seconds += self.of_noise if round_.of_noise else 10.0
        made = super().block(name, round_)
        return made.model_copy(update={"seconds": made.seconds * (1 + 0.02 * (round_.number % 2) * (name == "b"))})

    @property
    def spent(self) -> float:
        return self.seconds


def ended(budget: float, of_noise: float = 10.0) -> Tally:
    return played(Costly(of_noise), Rules(pairs=6, most_pairs=16, budget_seconds=budget))


@pytest.mark.parametrize(
    ("budget", "rounds", "noise", "caveat"),
    [
        (58.0, 2, 1, f"noise floor from one pair: {BUDGET}"),
        (77.0, 2, 2, ""),
        (78.0, 2, 2, ""),
        (140.0, 4, 2, ""),
        (57.0, 2, 0, f"no noise floor: {BUDGET}"),
    ],
)
def test_pairs_of_noise_that_are_owed_run_behind_the_rounds(
    budget: float, rounds: int, noise: int, caveat: str
) -> None:
    """Two rounds cost 40 s, a pair of noise 20; two more rounds with the noise before them 60 more."""
    tally = ended(budget)
    assert tally.by_budget
    assert len(tally.log_ratios("b", "a")) == rounds
    assert len(tally.noise) == noise
    assert caveat_of_noise(tally, 2) == caveat
    assert 20.0 * (rounds + noise) <= (1 + NOISE_RESERVE) * budget


def test_the_reserve_is_small_and_only_for_noise() -> None:
    rules = Rules(budget_seconds=100)
    assert has_room_for_noise(80, 25, rules)
    assert not has_room_for_noise(80, 25.1, rules)
    assert has_room_for_noise(1e9, 1, Rules())


def test_no_more_of_it_runs_than_there_is_in_any_bench() -> None:
    """Controls: a bench without a budget, and one whose rounds end for precision, owe nothing."""
    for budget in (60.0, 100.0, 140.0, 160.0, None):
        tally = played(Costly(10.0), Rules(pairs=6, most_pairs=8, budget_seconds=budget))
        assert len(tally.noise) <= 2
        of_noise = [block.pair for block in tally.blocks if block.of_noise]
        assert of_noise == [0, 0, 1, 1][: len(of_noise)], "each once, in their order"
    precise = played(Player({"a": 100.0, "b": 125.0}), Rules(most_pairs=16, budget_seconds=1000))
    assert not precise.by_budget
    assert len(precise.noise) == 2
    capped = played(Costly(10.0), Rules(pairs=2, most_pairs=2, budget_seconds=1000))
    assert (capped.by_budget, len(capped.noise)) == (False, 2)


def quiet(noise: int, **more: Any) -> Tally:
    """Pairs of an arm that is a quarter faster, and so many of the first against itself."""
    tally = Tally(["a", "b"], ended="of the budget", by_budget=True, **more)
    for pair in range(6):
        tally.blocks += [commands.block(name, pair, seconds=10.0 if name == "a" else 8.0) for name in "ab"]
    tally.blocks += [commands.block("a", pair, of_noise=True) for pair in range(noise) for _ in range(2)]
    return tally


@pytest.mark.parametrize(("noise", "verdict"), [(0, Verdict.UNRESOLVED), (1, Verdict.FASTER), (2, Verdict.FASTER)])
def test_nobody_is_called_faster_without_a_floor(noise: int, verdict: Verdict) -> None:
    """Of one pair there is a floor, and the result says that it is of one."""
    tally = quiet(noise)
    caveat = caveat_of_noise(tally, 2)
    found = comparison(tally, PAIRING, tally.noise, 0, not_comparable="", no_floor=caveat)
    assert found.verdict is verdict
    assert found.why == (f"no noise floor: {BUDGET}" if noise == 0 else "")
    assert found.ratio is not None, "what was measured is shown"
    silent = comparison(tally, PAIRING, tally.noise, 0, not_comparable="")
    assert silent.verdict is verdict, "whoever forgets to say why claims no more"


def test_nor_slower_nor_of_an_interaction_but_the_same_is_the_same() -> None:
    """That two arms are alike is no claim that noise could have made. Control: with a floor all are called."""
    for shift, verdict in ((-0.1, Verdict.SLOWER), (0.1, Verdict.FASTER), (0.0, Verdict.SAME)):
        seen = estimate([shift + 0.0001 * n for n in range(-3, 4)])
        assert judge(seen).verdict is verdict
        without = judge(seen, no_floor="no noise floor: so it was")
        assert without.verdict is (Verdict.SAME if verdict is Verdict.SAME else Verdict.UNRESOLVED)
        assert without.why == ("" if verdict is Verdict.SAME else "no noise floor: so it was")
    tally = quiet(0)
    parts = [
        made.compared("a", "a", "c", "alone", 1.0, verdict=Verdict.SAME),
        made.compared("b", "a", "c", "last", 1.25, verdict=Verdict.UNRESOLVED),
    ]
    assert [one.verdict for one in interactions(tally, parts, (), 0)] == [Verdict.UNRESOLVED]
    assert [one.verdict for one in interactions(tally, parts, (0.0,), 0)] == [Verdict.FASTER]


def result_of(tally: Tally, wanted: int = 2) -> Result:
    asked = commands.asked_of(commands.arm("a"), commands.arm("b"))
    rules = Rules(pairs=2, most_pairs=16, noise_pairs=wanted, budget_seconds=100)
    asked = replace(asked, rules=rules)
    found = Measured(
        names=["a", "b"], asked=asked, device=commands.DEVICE, blocks=tally.blocks, ended=tally.ended,
        by_budget=tally.by_budget,
    )  # fmt: skip
    made_ = conclude(found, (), machine={"device": "a CPU"}, commit=None)
    return Result.model_validate_json(made_.model_dump_json())


@pytest.mark.parametrize(
    ("noise", "caveat", "said"),
    [
        (0, f"no noise floor: {BUDGET}", f"no noise floor: {BUDGET}"),
        (1, f"noise floor from one pair: {BUDGET}", f"noise floor (A/A) ±0 % from one pair: {BUDGET}"),
    ],
)
def test_it_is_said_wherever_the_result_is(noise: int, caveat: str, said: str, tmp_path: Path) -> None:
    """Control: of two pairs nothing is."""
    result = result_of(quiet(noise))
    assert result.noise_caveat == caveat
    for width in (80, 140):
        lines = [line.plain for line in screen(result, width)]
        assert len(lines) <= LINES
        assert said in "\n".join(lines)
    assert said in markdown(result)
    assert said in bench_page(result)
    if noise == 0:
        assert f"no noise floor: {BUDGET}" in result.sentence
        assert "is not resolved" in result.sentence
    whole = result_of(quiet(2))
    for text in (markdown(whole), bench_page(whole), whole.sentence, whole.noise_caveat):
        assert BUDGET not in text
    assert "noise floor (A/A) ±0 %" in markdown(whole)


def test_pairs_that_do_not_count_are_none() -> None:
    """Though the bench came to its end. Control: a bench whose other arms failed was no bench, and lacks nothing."""
    tally = quiet(2)
    tally.by_budget = False
    tally.blocks = [one.model_copy(update={"void": "it stood still"}) if one.of_noise else one for one in tally.blocks]
    assert caveat_of_noise(tally, 2) == "no noise floor: blocks of a against itself did not count"
    assert noise_of(tally.noise) is None
    assert caveat_of_noise(Tally(["a", "b"], failed={"b": "out of memory"}), 2) == ""
    assert caveat_of_noise(Tally(["a", "b"], unfinished="the budget"), 2) == f"no noise floor: {BUDGET}"


def test_while_it_runs_nobody_is_ahead_before_the_first_pair_of_noise() -> None:
    """Of a bench that is cut off behind two rounds."""
    tally = quiet(0)
    tally.by_budget, tally.ended = False, ""
    caveat = caveat_of_noise(tally, 2)
    assert caveat == "no noise floor: the bench ended before it"
    assert comparison(tally, PAIRING, (), 0, not_comparable="", no_floor=caveat).verdict is Verdict.UNRESOLVED
    assert math.isclose(tally.log_ratios("b", "a")[0], math.log(1.25))
