"""Blocks that were measured, and what they say of two arms: nothing here knows what an arm is."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dynotune.bench.statistics import log_ratios
from dynotune.results.result import Block


@dataclass(slots=True)
class Tally:
    """Grows while a bench runs."""

    names: Sequence[str]
    """Of the arms. The first is the baseline."""

    blocks: list[Block] = field(default_factory=list)
    """In the order in which they ran."""

    failed: dict[str, str] = field(default_factory=dict)
    """By arm, why it could not be measured."""

    apart: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """By two arms, how far their clocks were apart in each pair that was measured."""

    ended: str = ""
    """Why the rounds ended."""

    by_budget: bool = False
    """Whether that is why: rules that look at precision would have gone on."""

    unfinished: str = ""
    """Why the budget ended it before two pairs counted, as the end of a sentence: then nothing was compared."""

    costs: dict[str, list[float]] = field(default_factory=dict)
    """By arm, GPU seconds that each of its blocks took, with what led to it; those of noise are not among them."""

    replaces: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By the place of a block that was measured because another stood still, that other's place, from 0, and how many times
    its arm's median it took. Arm and round do not tell: both blocks of a pair of noise share them."""

    notes: list[str] = field(default_factory=list)
    """Of what watched the device."""

    def counted(self, arm: str) -> dict[int, Block]:
        """Blocks that count, by round."""
        return {b.pair: b for b in self.blocks if b.arm == arm and b.void is None and not b.of_noise}

    def seconds_of(self, names: Iterable[str]) -> float:
        """GPU seconds that a block of each of these arms takes, by those so far."""
        costs = [self.costs.get(name, ()) for name in names]
        return sum(sum(each) / len(each) for each in costs if each)

    def last_loss(self, arm: str) -> float | None:
        """Of the newest block that counts and tells one."""
        return next((block.loss for block in reversed(self.counted(arm).values()) if block.loss is not None), None)

    def pairs(self, arm: str, against: str) -> dict[int, tuple[Block, Block]]:
        """By round, of those in which both have a block that counts."""
        mine, theirs = self.counted(arm), self.counted(against)
        return {n: (mine[n], theirs[n]) for n in mine if n in theirs}

    def log_ratios(self, arm: str, against: str) -> dict[int, float]:
        """By round, of those in which both have a block that counts: ln(rate of the arm / rate of the other)."""
        return {n: math.log(mine.rate / other.rate) for n, (mine, other) in self.pairs(arm, against).items()}

    @property
    def noise_pairs(self) -> list[tuple[Block, Block]]:
        """Of the first arm against itself, those that count. Where one block of two was void, both ran again: the last
        two count."""
        found: dict[int, list[Block]] = {}
        for block in self.blocks:
            if block.of_noise and block.void is None:
                found.setdefault(block.pair, []).append(block)
        return [(pair[-2], pair[-1]) for pair in found.values() if len(pair) >= 2]

    @property
    def noise(self) -> list[float]:
        """Log ratios of the first arm against itself."""
        pairs = self.noise_pairs
        return log_ratios([second.rate for _, second in pairs], [first.rate for first, _ in pairs])
