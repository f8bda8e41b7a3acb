"""Whether the rates in a bench's table say something else than its ratio: a sentence for whoever reads both.

An arm's rate is its tokens over the seconds of all its blocks, as everywhere; a ratio weighs each pair alike. One block that
something else held up, 30 times as long as its arm's others, moves the first a long way and the second hardly.
"""

from collections.abc import Sequence
from statistics import median

from dynotune.bench.judging.sentence import name
from dynotune.results.result import Arm, Comparison


def notes_of_totals(comparisons: Sequence[Comparison], arms: Sequence[Arm]) -> list[str]:
    """One for each arm whose rates over all blocks are outside of the interval of its ratio."""
    every, said = {arm.name: arm for arm in arms}, []
    for one in comparisons:
        arm, other = every.get(one.arm), every.get(one.against)
        if arm is None or other is None or one.ratio is None or one.role == "interaction":
            continue
        mine, theirs = arm.per_second("tokens"), other.per_second("tokens")
        if not mine or not theirs or one.ratio.low <= mine / theirs <= one.ratio.high:
            continue
        worst = max((arm, other), key=_longest)
        said.append(
            f"tokens/s are over all blocks ({mine / theirs:.2f}x), and the longest of {name(worst.name)} took"
            f" {_longest(worst):.1f} times its median: the ratio weighs each pair alike, go by it"
        )
    return list(dict.fromkeys(said))


def notes_of_shared(arms: Sequence[Arm]) -> list[str]:
    """Where arms compute fewer tokens than their documents have, since what two begin with is computed once."""
    shares = {
        arm.name: sum(b.tokens for b in arm.counted) / sum(b.real_tokens for b in arm.counted)
        for arm in arms
        if arm.shares
    }
    if not shares:
        return []
    first = next(iter(shares))
    others = f" and {len(shares) - 1} more" if len(shares) > 1 else ""
    return [
        f"{name(first)}{others}: tokens/s are of documents, {shares[first]:.2f} times the real tokens that it computes,"
        " since what both answers of a pair begin with is computed once; MFU and fill are of what is computed"
    ]


def _longest(arm: Arm) -> float:
    """The longest block, in medians."""
    seconds = [block.seconds / block.tokens for block in arm.counted if block.tokens]
    return max(seconds) / median(seconds) if seconds else 0.0
