"""The ladder: the few static token counts that micro-batches take, so that graphs and compiled code see few shapes."""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

RUNGS = 16
"""Rungs of a ladder, at most. Of 2 documents a step 7 % fewer tokens are processed than with 8, of 16 documents 2 %."""

COMPILED_RUNGS = 8
"""The same where layers are compiled, for each rung anew: that takes seconds."""

GRAPHS_SLACK = 0.02
"""Of the tokens: what fewer rungs may pad more where each has a graph of its own, which takes 0.1 to 0.7 s. Packed steps of
32,768 tokens without the last ones of their documents had three rungs for 1.5 % of them, and made graphs in 90 steps. No
price by the length of the run: a bench and a profile would have other rungs than the runs they speak of."""

MICRO_BATCH_COST = 512
"""What a micro-batch costs beside its tokens, in tokens: launches, and weights that are read once more. One more than fit is
used only where it saves more padding than this."""

MOST_TOGETHER = 3
"""Rungs that are looked for together."""


def spacing(tokens: int) -> int:
    """The distance of neighbouring rungs: 32 tokens up to 512, 64 up to 4,096, 128 up to 131,072, and above a 512th of the
    power of two below: documents of millions of tokens would otherwise make more rungs than can be chosen from."""
    if tokens <= 512:
        return 32
    return 64 if tokens <= 4096 else max(128, 1 << (tokens.bit_length() - 10))


def round_up(tokens: int) -> int:
    """The smallest possible rung that holds `tokens`."""
    return max(64, -(-tokens // spacing(tokens)) * spacing(tokens))


def round_down(tokens: int) -> int:
    """The largest possible rung of at most `tokens`; the smallest of all where none is."""
    return max(64, tokens - tokens % spacing(tokens))


def possible_rungs(top: int) -> NDArray[np.int64]:
    """All rungs up to `top`, itself one."""
    assert top == round_up(top), top
    rungs = [64]
    while rungs[-1] < top:
        rungs.append(round_up(rungs[-1] + 1))
    return np.array(rungs, np.int64)


class Ladder:
    """A few rungs in ascending order."""

    def __init__(self, rungs: Sequence[int], overhead: int = MICRO_BATCH_COST) -> None:
        assert list(rungs) == sorted({*rungs}), rungs
        assert len(rungs) > 0
        self.rungs, self.overhead = tuple(int(rung) for rung in rungs), overhead

    @property
    def top(self) -> int:
        """Tokens of the largest micro-batch."""
        return self.rungs[-1]

    def rung(self, tokens: int) -> int:
        """The smallest rung that holds `tokens`."""
        return next(rung for rung in self.rungs if rung >= tokens)

    def cost(self, loads: Sequence[int]) -> int:
        """Processed tokens of micro-batches that hold `loads`, and what their number costs."""
        return sum(self.rung(load) for load in loads) + self.overhead * len(loads)

    def sets(self, tokens: int, longest: int, below: int | None = None) -> Iterator[tuple[int, ...]]:
        """Sets of up to three rungs that may hold `tokens` with a document of `longest`: cheapest first, then fewest; only
        those that cost less than `below`."""
        members, sums, tops, costs, _ = self._sets
        fit = (sums >= tokens) & (tops >= longest)
        if below is not None:
            fit &= costs < below
        for one in np.flatnonzero(fit):
            yield tuple(rung for rung in members[one].tolist() if rung)

    def fits_one(self, totals: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these totals [steps] certainly take a single micro-batch: no set of several rungs could be cheaper."""
        _, sums, _, costs, sizes = self._sets
        found = np.minimum(totals, self.top)
        one = _cheapest(sums[sizes == 1], costs[sizes == 1], found)
        return (totals <= self.top) & (one <= _cheapest(sums[sizes > 1], costs[sizes > 1], found))

    def cost_of_steps(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The cheapest set for each of `steps` [steps, 2] (tokens, and the longest document), if documents could be cut."""
        _, sums, tops, costs, _ = self._sets
        needed = np.searchsorted(self.rungs, steps[:, 1])
        result = np.empty(len(steps), np.int64)
        for place in np.unique(needed).tolist():
            mine, allowed = needed == place, tops >= self.rungs[place]
            result[mine] = _cheapest(sums[allowed], costs[allowed], steps[mine, 0])
        return result

    @cached_property
    def _sets(self) -> tuple[NDArray[np.int64], ...]:
        """Members [sets, 3] (0 where there are fewer), their sum, largest, cost and number [sets], cheapest first."""
        members = np.array([0, *self.rungs])[_places(len(self.rungs))]
        sums, sizes = members.sum(1), (members > 0).sum(1)
        costs = sums + self.overhead * sizes
        order = np.lexsort((sizes, costs))
        return members[order], sums[order], members.max(1)[order], costs[order], sizes[order]


@cache
def _places(rungs: int) -> NDArray[np.int64]:
    """All multisets of up to three of `rungs` places, which count from 1; 0 is none."""
    return np.array(list(combinations_with_replacement(range(rungs + 1), MOST_TOGETHER))[1:])


def _cheapest(sums: NDArray[np.int64], costs: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least of `costs` whose sum is at least `tokens`, for each of these."""
    order = np.argsort(sums, kind="stable")
    least_from = np.minimum.accumulate(costs[order][::-1])[::-1]
    return least_from[np.searchsorted(sums[order], tokens)]


def choose_ladder(loads: NDArray[np.int64], top: int, rungs: int = RUNGS, slack: float = 0.0) -> tuple[int, ...]:
    """The `rungs` or fewer, `top` among them, that pad bins of `loads` [bins] least: exact, by dynamic programming.

    `loads` are tokens of bins, each at most `top`, itself a possible rung. slack: the fewest are taken that process at most
    this share more than those.
    """
    possible = possible_rungs(top)
    counts = np.bincount(np.searchsorted(possible, loads), minlength=len(possible))
    # A rung that no load rounds up to pads as much as the next lower one to which some do, or more.
    within_reach = counts > 0
    within_reach[-1] = True
    possible, counts = possible[within_reach], counts[within_reach]
    upto = np.concatenate([[0], np.cumsum(counts)])
    cost = upto[1:] * possible
    """[possible]: the least padded tokens of all loads up to this rung, the highest in use."""
    choices: list[NDArray[np.int64]] = []
    costs = [int(cost[-1])]
    place = np.arange(len(possible))
    for _ in range(rungs - 1):
        with_lower = cost[:, None] + (upto[None, 1:] - upto[1:, None]) * possible[None, :]
        with_lower[place[:, None] >= place[None, :]] = np.iinfo(np.int64).max
        lower = with_lower.argmin(0)
        least = with_lower[lower, place]
        choices.append(np.where(least < cost, lower, -1))
        cost = np.minimum(cost, least)
        costs.append(int(cost[-1]))
    enough = next(more for more, one in enumerate(costs) if one <= (1 + slack) * costs[-1])
    chosen = [len(possible) - 1]
    for choice in reversed(choices[:enough]):
        if choice[chosen[-1]] >= 0:
            chosen.append(int(choice[chosen[-1]]))
    return tuple(possible[sorted(chosen)].tolist())


def improve_ladder(ladder: Ladder, steps: NDArray[np.int64]) -> Ladder:
    """Move rungs below the top while that makes `steps` cheaper, now that a step may spread over several rungs.

    `steps` [steps, 2]: tokens to lay out in each, and its longest document. A local search: each rung in turn jumps by
    powers of two of the spacing.
    """
    rounded = np.array([[round_up(tokens), round_up(longest)] for tokens, longest in steps.tolist()])
    steps, counts = np.unique(rounded, axis=0, return_counts=True)
    possible = possible_rungs(ladder.top)
    jumps = [sign << power for power in range(len(possible).bit_length()) for sign in (1, -1)]
    best, least = ladder, int((ladder.cost_of_steps(steps) * counts).sum())
    improved = True
    while improved:
        improved = False
        for place in range(len(best.rungs) - 1):
            others = best.rungs[:place] + best.rungs[place + 1 :]
            at = int(np.searchsorted(possible, best.rungs[place]))
            for rung in (int(possible[at + jump]) for jump in jumps if 0 <= at + jump < len(possible)):
                if rung in others:
                    continue
                moved = Ladder(sorted((rung, *others)), ladder.overhead)
                cost = int((moved.cost_of_steps(steps) * counts).sum())
                if cost < least:
                    best, least, improved = moved, cost, True
            if improved:
                break  # places have changed
    return best
