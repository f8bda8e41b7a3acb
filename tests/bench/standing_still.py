"""Benches of two arms of which blocks stand still now and then: rounds, repeats and verdicts as they are shipped."""

from collections.abc import Callable

import numpy as np

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.asking.schedule import Round, Rules
from dynotune.bench.judging.verdict import Judgement, judge
from dynotune.bench.running.guard import Guard
from dynotune.bench.running.rounds import noted, play
from dynotune.bench.running.tally import Tally
from dynotune.bench.statistics import Estimate, estimate
from dynotune.results.result import Block

Factor = Callable[[str, int, bool, int], float]
"""Arm, round, whether of noise, how often it was measured before: by which a block takes longer than its arm does."""

SPEED = 100.0
"""Of the first arm, in tokens a second."""

QUIET = 0.006
"""Noise of a block, as a standard deviation of the logarithm of its time."""


class Player:
    """Blocks of speeds that are known, each by its own factor."""

    def __init__(self, factor: Factor, ratio: float) -> None:
        self.factor, self.speeds = factor, {"a": SPEED, "b": SPEED * ratio}
        self.taken: list[tuple[str, int, bool]] = []

    def block(self, name: str, round_: Round) -> Block:
        one = (name, round_.number, round_.of_noise)
        tokens = 1000 + 100 * (round_.number % 3)
        seconds = tokens / self.speeds[name] * self.factor(*one, self.taken.count(one))
        self.taken.append(one)
        return Block(
            arm=name, pair=round_.number, first_step=1, steps=5, examples=5, documents=5, real_tokens=tokens,
            label_tokens=500, processed_tokens=1000, seconds=seconds, of_noise=round_.of_noise,
        )  # fmt: skip

    def drop(self, name: str) -> None:
        raise AssertionError(name)

    @property
    def spent(self) -> float:
        return 10.0 * len(self.taken)


def played(
    factor: Factor, rules: Rules | None = None, said: list[str] | None = None, seed: int = 0, ratio: float = 1.25
) -> Tally:
    """A whole bench of `a` against `b`. ratio: of their speeds."""
    tally, said = Tally(["a", "b"]), [] if said is None else said
    pairings = [Pairing("b", "a", "b", "whole")]
    play(tally, Player(factor, ratio), tally.names, pairings, rules or Rules(), seed, said.append)
    return noted(tally, Guard())


def standing_still(seed: int, share: float, noise: float = QUIET) -> Factor:
    """A share of blocks stands still, 4 to 20 times as long."""
    random = np.random.default_rng(seed)

    def factor(arm: str, number: int, of_noise: bool, times: int) -> float:
        usual = float(np.exp(noise * random.standard_normal()))
        stands, long = random.random() < share, float(random.uniform(4, 20))
        return usual * (long if stands else 1.0)

    return factor


def benches(count: int, share: float, noise: float = QUIET, ratio: float = 1.0) -> list[tuple[Estimate, Judgement]]:
    found = []
    for seed in range(count):
        tally = played(standing_still(seed, share, noise), seed=seed, ratio=ratio)
        one = estimate([*tally.log_ratios("b", "a").values()], tally.noise)
        found.append((one, judge(one)))
    return found


def missed(found: list[tuple[Estimate, Judgement]], truth: float) -> float:
    """Share of intervals that leave the true log ratio out."""
    return float(np.mean([not one.low <= truth <= one.high for one, _ in found]))
