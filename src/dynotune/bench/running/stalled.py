"""Blocks in which something stood still that is no part of a step: they stand several times above their arm's other blocks.

On an H200 blocks of one arm took 3.3, 0.19, 2.8, 0.16, 3.3 and 0.17 s: a library made plans, and a host may stop for as
long. One such block makes an interval of 0.97x to 26x of a change that gains a few percent.

The rule looks at nothing but how a block stands to its own arm's others, so that a ratio of the arms cancels in it: what it
voids of identical arms it voids of any, and of both with the same probability. Pairs stay as symmetric about the true ratio
as they were, which is what their interval asks for. And it voids no noise: a median of noisy blocks is uncertain itself, and
whoever takes away what lies above it takes the more from the arm that was lucky, so that zero is missed in 8 to 13 % of
benches where blocks spread by half of their time and more. So a block has to lie far off as its arm's faster half is
spread, too, and of enough blocks. What an arm does by itself it does again in the block that is measured instead, and that
one counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

from dynotune.bench.running.tally import Tally
from dynotune.results.result import Block

FACTOR = 3.0
"""Times an arm's median. Slow steps are a few percent to a third longer, a block on a busy host of two cores half as long
again; what stood still was 9 to 21 times."""

APART = 4.0
"""Times as far above the median, in logarithms, as the median is above the fastest block: normal noise never is."""

LEAST = 6
"""Blocks of an arm, from which on one may be void."""

TOOK = "times as long as its arm's median"


@dataclass(frozen=True, slots=True)
class Stall:
    """A block that counts so far."""

    place: int
    """In the tally, from 0."""

    factor: float
    """Of its arm's median time of a token."""

    @property
    def why(self) -> str:
        """As the end of a sentence: what is said of a void block."""
        return f"block {self.place + 1} took {_factor(self.factor)} {TOOK}"


def stalls(tally: Tally, arm: str) -> list[Stall]:
    """Blocks of an arm that are to be measured again, those of its pairs against itself among them."""
    times = _times(tally, arm)
    if len(times) < LEAST:
        return []
    apart = (median_low(times) / min(times)) ** APART
    return [one for one in standing_out(tally, arm) if one.factor > apart]


def standing_out(tally: Tally, arm: str) -> list[Stall]:
    """Blocks of an arm that count and took `FACTOR` times as long a token as its median; of two the median is the faster,
    since nothing makes a block several times too fast."""
    times = _times(tally, arm)
    if len(times) < 2:
        return []
    usual = median_low(times)
    return [
        Stall(place, 1 / block.rate / usual)
        for place, block in enumerate(tally.blocks)
        if block.arm == arm and block.void is None and 1 / block.rate > FACTOR * usual
    ]


def _times(tally: Tally, arm: str) -> list[float]:
    """Of a token, in the blocks of an arm that count."""
    return [1 / block.rate for block in tally.counted(arm).values()]


def _stood_still(tally: Tally, arm: str) -> list[tuple[int, float]]:
    """Place and factor of an arm's blocks that are void by this rule, in the order in which they ran."""
    return sorted(void for void in tally.replaces.values() if tally.blocks[void[0]].arm == arm)


def is_repeat(tally: Tally, place: int) -> bool:
    """Whether the block there was measured instead of one that stood still: what stands still twice is the arm's own."""
    return place in tally.replaces


def notes_of_stalls(tally: Tally) -> Iterator[str]:
    """What was measured again, by arm, and what counts though it stands out."""
    for name in tally.names:
        if void := _stood_still(tally, name):
            yield f"{_took(name, void)} and {'were' if len(void) > 1 else 'was'} measured again{_with_them(tally, name)}."
        left: dict[str, list[tuple[int, float]]] = {}
        unmistakable = stalls(tally, name)
        for one in standing_out(tally, name):
            because = f"{name} has too few blocks, or too different ones, to tell a stall from noise"
            if one in unmistakable:
                because = "there was no budget to measure again"
            if is_repeat(tally, one.place):
                because = "so it was when measured again"
            left.setdefault(because, []).append((one.place, one.factor))
        for because, listed in left.items():
            yield f"{_took(name, listed)} and count{'s' * (len(listed) == 1)}: {because}."


def _took(name: str, listed: Sequence[tuple[int, float]]) -> str:
    """`Blocks 6 and 41 (b.yaml) took 16 to 21 times as long as its arm's median`. listed: place and factor."""
    numbers = [str(place + 1) for place, _ in listed]
    which = numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    factors = list(dict.fromkeys(_factor(factor) for _, factor in sorted(listed, key=lambda one: one[1])))
    took = factors[0] if len(factors) == 1 else f"{factors[0]} to {factors[-1]}"
    return f"Block{'s' * (len(listed) > 1)} {which} ({name}) took {took} {TOOK}"


def _factor(factor: float) -> str:
    return f"{factor:.{0 if factor >= 9.95 else 1}f}"


def _with_them(tally: Tally, name: str) -> str:
    """What void blocks would make of the arm's rate, as the end of a sentence: who hides a stall that is the arm's own way
    says how much it was."""
    counted = [*tally.counted(name).values()]
    stood_still = [tally.blocks[place] for place, _ in _stood_still(tally, name)]
    void = [block for block in stood_still if not block.of_noise]
    if not counted or not void:
        return ""
    share = _rate([*counted, *void]) / _rate(counted)
    return f": with {'them' if len(void) > 1 else 'it'} its rate would be {share:.0%} of what it is"


def _rate(blocks: Sequence[Block]) -> float:
    return sum(block.real_tokens for block in blocks) / sum(block.seconds for block in blocks)
