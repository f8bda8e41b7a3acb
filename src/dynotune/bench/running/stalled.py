"""Blocks in which something stood still that is no part of a step: they stand several times above their arm's other blocks.

On an H200 blocks of one arm took 3.3, 0.19, 2.8, 0.16, 3.3 and 0.17 s: a library made plans, and a host may stop for as
long. One such block makes an interval of 0.97x to 26x of a change that gains a few percent.

The rule looks at nothing but how a block stands to its own arm's median, so that a ratio of the arms cancels in it: what it
voids of identical arms it voids of any, and of both with the same probability. Pairs stay as symmetric about the true ratio
as they were, which is all that their interval asks for. What an arm does by itself it does again in the block that is
measured instead, and that one counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

from dynotune.bench.running.tally import Tally
from dynotune.results.result import Block

FACTOR = 3.0
"""Times an arm's median. Slow steps are a few percent to a third longer, a block on a busy host of two cores half as long
again; what stood still was 9 to 21 times."""

LEAST = 2
"""Blocks of an arm, of which there is a median: of two the faster, since nothing makes a block several times too fast."""

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
        return f"block {self.place + 1} took {self.factor:.{0 if self.factor >= 9.95 else 1}f} {TOOK}"


def stalls(tally: Tally, arm: str) -> list[Stall]:
    """Of the blocks of an arm that count, and of its pairs against itself."""
    times = [1 / block.rate for block in tally.counted(arm).values()]
    if len(times) < LEAST:
        return []
    usual = median_low(times)
    return [
        Stall(place, 1 / block.rate / usual)
        for place, block in enumerate(tally.blocks)
        if block.arm == arm and block.void is None and 1 / block.rate > FACTOR * usual
    ]


def stood_still(block: Block) -> bool:
    """Whether it is void by this rule."""
    return block.void is not None and TOOK in block.void


def was_repeated(tally: Tally, block: Block) -> bool:
    """Whether another block of its arm and round is void by this rule: what stands still twice is the arm's own."""
    return any(
        stood_still(other) and (other.arm, other.pair, other.of_noise) == (block.arm, block.pair, block.of_noise)
        for other in tally.blocks
    )


def notes_of_stalls(tally: Tally) -> Iterator[str]:
    """What was measured again, by arm, and what counts though it stood still."""
    for name in tally.names:
        void = [(i, block) for i, block in enumerate(tally.blocks) if block.arm == name and stood_still(block)]
        if void:
            yield _measured_again(tally, name, void)
        for one in stalls(tally, name):
            block = tally.blocks[one.place]
            because = (
                "as when it was measured before" if was_repeated(tally, block) else "there was no budget for another"
            )
            yield f"{one.why[0].upper()}{one.why[1:]} ({name}), {because}: it counts."


def _measured_again(tally: Tally, name: str, void: Sequence[tuple[int, Block]]) -> str:
    numbers = [str(i + 1) for i, _ in void]
    listed = numbers[0] if len(void) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    times = [(block.void or "").partition(" took ")[2].partition(" ")[0] for _, block in void]
    took = times[0] if len({*times}) == 1 else f"{min(times, key=float)} to {max(times, key=float)}"
    said = (
        f"Block{'s' * (len(void) > 1)} {listed} ({name}) took {took} {TOOK} and"
        f" {'were' if len(void) > 1 else 'was'} measured again"
    )
    counted = [*tally.counted(name).values()]
    more = [*counted, *(block for _, block in void if not block.of_noise)]
    if len(more) == len(counted) or not counted:
        return f"{said}."
    share = _rate(more) / _rate(counted)
    return f"{said}: with {'them' if len(void) > 1 else 'it'} its rate would be {share:.0%} of what it is."


def _rate(blocks: Sequence[Block]) -> float:
    return sum(block.real_tokens for block in blocks) / sum(block.seconds for block in blocks)
