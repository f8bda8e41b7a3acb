"""Promise: what follows from a ratio is said only where the ratio is known to be one."""

import pytest

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.judging.comparison import comparison
from dynotune.bench.judging.conclude import interactions
from dynotune.bench.running.tally import Tally
from dynotune.results.result import Block, Verdict

PAIRING = Pairing("b", "a", "b", "whole")
QUIET = (0.0, 0.001)
"""Of the first arm against itself."""


def tally(*seconds: float) -> Tally:
    """Pairs in which the first arm takes one second a block, the other so many."""
    found = Tally(["a", "b"])
    for pair, of_other in enumerate(seconds):
        for arm, taken in (("a", 1.0), ("b", of_other)):
            found.blocks.append(
                Block(
                    arm=arm, pair=pair, first_step=1, steps=5, examples=5, documents=5, real_tokens=1000,
                    label_tokens=500, processed_tokens=1000, seconds=taken,
                )
            )  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("seconds", "verdict", "steps"),
    [
        ((0.8, 0.801, 0.799, 0.8), Verdict.FASTER, 37.0),
        ((0.998, 1.001, 0.998, 1.001), Verdict.SAME, None),
        ((0.8, 1.1, 0.9, 1.0), Verdict.UNRESOLVED, None),
        ((1.2, 1.201, 1.199, 1.2), Verdict.SLOWER, None),
    ],
)
def test_only_what_is_faster_pays_back(seconds: tuple[float, ...], verdict: Verdict, steps: float | None) -> None:
    found = comparison(tally(*seconds), PAIRING, QUIET, 0, not_comparable="", pays_back=37.0)
    assert found.verdict is verdict
    assert found.pays_back_after_steps == steps


def test_one_pair_is_no_comparison_and_says_why() -> None:
    found = comparison(tally(0.5), PAIRING, QUIET, 0, not_comparable="")
    assert (found.verdict, found.ratio) == (Verdict.UNRESOLVED, None)
    assert found.why == "fewer than two pairs count"


def test_an_interaction_has_to_clear_the_noise_of_two_ratios() -> None:
    """Blocks of one arm are 16 % apart: an interaction of 10 % is none that can be told. Control: on a quiet host it is."""
    found = tally(0.9, 0.9, 0.9, 0.9)
    alone, last = (Pairing("a", "a", "c", "alone"), Pairing("b", "a", "c", "last"))
    both = [comparison(found, one, QUIET, 0, not_comparable="") for one in (alone, last)]
    for noise, verdict in ((QUIET, Verdict.FASTER), ((0.16, -0.16), Verdict.UNRESOLVED)):
        (one,) = interactions(found, both, noise, 0)
        assert (one.role, one.verdict) == ("interaction", verdict)
