"""Promise: a block in which something stood still is measured again and said, whichever arm it is of; benches of identical
arms that stand still now and then are wrong as seldom as others."""

import numpy as np
import pytest

from dynotune.bench import statistics
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.judging.verdict import Judgement
from dynotune.bench.running import stalled
from dynotune.bench.running.tally import Tally
from dynotune.bench.statistics import Estimate
from dynotune.results.result import Block, Verdict
from tests.bench.standing_still import Factor, benches, missed, played


def once(arm: str, number: int, by: float) -> Factor:
    """The first time that this block is measured."""
    return lambda *one: by if one == (arm, number, False, 0) else 1.0


def void(tally: Tally) -> list[Block]:
    return [block for block in tally.blocks if block.void is not None]


@pytest.mark.parametrize("arm", ["a", "b"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_it_is_measured_again_on_the_same_documents_and_said(arm: str, number: int) -> None:
    """Also in the first round, of which there is no median yet: it is found when there is one."""
    said: list[str] = []
    tally = played(once(arm, number, 17.0), Rules(most_pairs=6), said)
    [block] = void(tally)
    assert (block.arm, block.pair) == (arm, number)
    place = tally.blocks.index(block) + 1
    assert block.void == f"block {place} took 17 times as long as its arm's median"
    assert said == [f"{arm}: a block does not count: {block.void}"]
    assert len(tally.log_ratios("b", "a")) == 6
    assert tally.log_ratios("b", "a") == {n: pytest.approx(np.log(1.25)) for n in range(6)}
    [note] = [note for note in tally.notes if "median" in note]
    assert note.startswith(
        f"Block {place} ({arm}) took 17 times as long as its arm's median and was measured again: with it its"
    )


def test_what_is_less_counts_and_nothing_is_said() -> None:
    """Control: a step that is slow now and then is the arm's own, and widens the interval."""
    tally = played(once("b", 2, 2.9), Rules(most_pairs=6))
    assert not void(tally)
    assert not [note for note in tally.notes if "median" in note]


def test_what_stands_still_again_is_the_arms_own_and_counts() -> None:
    tally = played(
        lambda arm, number, noise, times: 9.0 if (arm, number, noise) == ("b", 2, False) else 1.0, Rules(most_pairs=6)
    )
    assert len(void(tally)) == 1
    assert tally.log_ratios("b", "a")[2] == pytest.approx(np.log(1.25 / 9))
    assert any(note.endswith("median and counts: so it was when measured again.") for note in tally.notes)


def test_no_budget_is_spent_on_it_that_is_not_there() -> None:
    """Then it counts and is said. Control: with room for one more block it is measured again."""
    late = once("b", 3, 9.0)
    pairs = {"pairs": 6, "most_pairs": 6, "noise_pairs": 0}
    tally = played(late, Rules(**pairs, budget_seconds=120))  # type: ignore[arg-type]
    assert not void(tally)
    assert any(note.endswith("median and counts: there was no budget to measure again.") for note in tally.notes)
    assert len(void(played(late, Rules(**pairs, budget_seconds=130)))) == 1  # type: ignore[arg-type]


def test_of_few_blocks_it_is_said_and_counts() -> None:
    """Their median says too little. Control: of one more."""
    tally = played(once("b", 1, 9.0), Rules(pairs=5, most_pairs=5))
    assert not void(tally)
    [note] = [note for note in tally.notes if "median" in note]
    assert "(b) took 9.0 times as long as its arm's median and counts: b has too few blocks" in note
    assert len(void(played(once("b", 1, 9.0), Rules(pairs=6, most_pairs=6)))) == 1


def test_noise_is_not_taken_for_a_stall() -> None:
    """Blocks that lie apart by factors anyway. Control: as far from blocks that lie close, above."""
    factors = (1.0, 1.6, 2.5, 1.2, 2.0, 5.0)
    tally = played(lambda arm, number, noise, times: factors[number] if arm == "b" else 1.0, Rules(most_pairs=6))
    assert not void(tally)
    assert [note for note in tally.notes if "(b) took 3.1 times" in note and "tell a stall from noise" in note]


def test_pairs_of_an_arm_against_itself_are_held_to_the_same_rule() -> None:
    tally = played(
        lambda arm, number, noise, times: 9.0 if noise and number == 0 and times == 0 else 1.0, Rules(most_pairs=6)
    )
    assert [block.of_noise for block in void(tally)] == [True]
    assert tally.noise == [pytest.approx(0.0), pytest.approx(0.0)]


def test_both_blocks_of_such_a_pair_are_measured_again_and_nothing_is_said_that_did_not_happen() -> None:
    """Each stood still once: neither counts. Control: one that stands still again counts, and only of it that is said."""
    tally = played(
        lambda arm, number, noise, times: 9.0 if noise and number == 0 and times < 2 else 1.0, Rules(most_pairs=6)
    )
    assert [(block.of_noise, block.pair) for block in void(tally)] == [(True, 0), (True, 0)]
    assert tally.noise == [pytest.approx(0.0), pytest.approx(0.0)]
    assert not [note for note in tally.notes if "so it was when measured again" in note]
    tally = played(
        lambda arm, number, noise, times: 9.0 if noise and number == 0 and times < 3 else 1.0, Rules(most_pairs=6)
    )
    assert len(void(tally)) == 2
    [note] = [note for note in tally.notes if "counts" in note]
    assert note.startswith("Block ")
    assert note.endswith("median and counts: so it was when measured again.")


def test_every_second_block_of_an_arm() -> None:
    """As on the H200: 3.3, 0.19, 2.8, 0.16, 3.3 and 0.17 s. The note says what they would make of its rate."""
    tally = played(
        lambda arm, number, noise, times: 18.0 if arm == "b" and number % 2 == 0 and not times else 1.0,
        Rules(most_pairs=6),
    )
    assert {(block.arm, block.pair) for block in void(tally)} == {("b", 0), ("b", 2), ("b", 4)}
    [note] = [note for note in tally.notes if "median" in note]
    assert note.startswith("Blocks ")
    assert "(b) took 18 times as long as its arm's median and were measured again: with them its rate would be" in note
    assert tally.log_ratios("b", "a") == {n: pytest.approx(np.log(1.25)) for n in range(6)}


@pytest.fixture
def without_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides nothing and takes most of the time."""
    monkeypatch.setattr(statistics, "BOOTSTRAP_FROM", 1000)


@pytest.mark.usefixtures("without_the_bootstrap")
@pytest.mark.parametrize("ratio", [1.0, 2.5])
def test_rare_stalls_bias_nothing(ratio: float) -> None:
    """3 % of blocks stand still 4 to 20 times as long. Of identical arms, and of one that is 2.5 times as fast."""
    found = benches(300, 0.03, ratio=ratio)
    assert missed(found, np.log(ratio)) <= 0.08  # 5 % and two standard errors of 300
    away = np.array([one.mean - np.log(ratio) for one, _ in found])
    assert abs(away.mean()) <= 3 * away.std() / np.sqrt(len(away))
    if ratio == 1.0:
        assert np.mean([one.verdict in (Verdict.FASTER, Verdict.SLOWER) for _, one in found]) <= 0.05


@pytest.mark.usefixtures("without_the_bootstrap")
def test_without_the_rule_such_benches_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: what the rule is for. Of 16 pairs of which one stood still the interval is tens of per cent wide."""

    def narrow(found: list[tuple[Estimate, Judgement]]) -> float:
        return float(np.mean([one.half_width < 0.01 for one, _ in found]))

    assert narrow(benches(60, 0.03)) >= 0.95
    monkeypatch.setattr(stalled, "FACTOR", np.inf)
    assert narrow(benches(60, 0.03)) <= 0.75


@pytest.mark.long
@pytest.mark.usefixtures("without_the_bootstrap")
def test_noise_of_half_a_block_stays_as_honest_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a rule that goes by the median alone takes the more from the arm that was lucky, and misses too often."""
    assert missed(benches(2000, 0.0, noise=0.5), 0.0) <= 0.065
    monkeypatch.setattr(stalled, "APART", 0.0)
    monkeypatch.setattr(stalled, "LEAST", 2)
    assert missed(benches(2000, 0.0, noise=0.5), 0.0) > 0.065


@pytest.mark.long
@pytest.mark.usefixtures("without_the_bootstrap")
@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("ratio", [1.0, 2.5])
def test_two_thousand_benches_with_stalls(share: float, ratio: float) -> None:
    found = benches(2000, share, ratio=ratio)
    assert 0.035 <= missed(found, np.log(ratio)) <= 0.065
    if ratio == 1.0:
        assert np.mean([one.verdict in (Verdict.FASTER, Verdict.SLOWER) for _, one in found]) <= 0.05
