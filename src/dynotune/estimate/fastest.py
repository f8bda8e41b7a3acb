"""The fastest setting that fits: how many tokens a micro-batch holds, and what is done about activations.

Two ways to take less memory, and each costs time: smaller micro-batches, whose launches and weights are paid more often, and
computing again. Both are put into one figure, the time of a token, and the least of all that fit is taken. So micro-batches
get smaller first, as long as that costs less than computing again.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dynotune.estimate.capacity import SPARED
from dynotune.plan.ladder import MICRO_BATCH_COST, possible_rungs, round_down, round_up
from dynotune.plan.plan import Plan

CHEAP_AGAIN = 1.03
"""Time of a token where cheap results are made again, estimated: three elementwise passes over a layer's activations are 19
ms of 832 for 16,384 tokens of a 7B shape on an H200 at 3.5 TB/s."""

HOST_COPIES = 0.05
"""What copies of layers' inputs add to computing layers again, estimated: they run beside it."""

LESS = 0.75
"""Of the tokens on which memory ran out, at most: as much less as a run lowers its micro-batches by."""

WORTH = 0.98
"""Another setting is tried out beside one that fits only if it promises to take at most this share of its time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is chosen."""

    policy: str
    """As `activation_memory` calls it."""

    tokens: int
    """Of the largest micro-batch."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a setting took, beside the weights."""

    bytes: int
    """With gradients and optimizer states."""

    reserved: int
    """The same by what the allocator held."""

    seconds: float
    """Forward and backward of the largest micro-batch."""


@dataclass(slots=True)
class Question:
    """What there is to choose from."""

    free: int
    """Bytes of the device beside the weights."""

    estimated: Callable[[str, int], int]
    """Bytes that a policy takes with micro-batches of so many tokens, beside the weights. It grows with the tokens."""

    costs: Mapping[str, float]
    """Time of a token under each policy there is, relative to `none`, from the most memory to the least."""

    least: int
    """Tokens that a micro-batch must hold: the longest document, a rung."""

    most: int
    """Tokens beyond which no micro-batch gets faster, or that no step has; a rung, at least `least`."""

    tried: dict[Setting, Measured | None] = field(default_factory=dict)
    """What was found by running it; None where memory ran out."""

    def limit(self) -> int:
        """Bytes that a setting may take."""
        return int(self.free * (1 - SPARED))

    def needed(self, setting: Setting) -> int | None:
        """Bytes, by what was tried under the same policy where anything was. None: memory ran out on as much, or hardly
        more."""
        trials = [(s.tokens, m) for s, m in self.tried.items() if s.policy == setting.policy]
        if any(m is None and setting.tokens > tokens * LESS for tokens, m in trials):
            return None
        if (here := self.tried.get(setting)) is not None:
            return here.bytes
        guess = self.estimated(setting.policy, setting.tokens)
        known = [(abs(tokens - setting.tokens), tokens, m) for tokens, m in trials if m is not None]
        if not known:
            return guess
        _, tokens, found = min(known, key=lambda one: one[:2])
        off = found.bytes - self.estimated(setting.policy, tokens)
        return max(0, guess + off * setting.tokens // tokens)

    def fits(self, setting: Setting) -> bool:
        needed = self.needed(setting)
        return needed is not None and needed <= self.limit()

    def cost(self, setting: Setting) -> float:
        """Time of a token, relative to `none` in micro-batches without end."""
        return self.costs[setting.policy] * (1 + MICRO_BATCH_COST / setting.tokens)

    def largest(self, policy: str) -> Setting | None:
        """The most tokens that fit under a policy; None where the longest document does not."""
        rungs = [rung for rung in possible_rungs(self.most).tolist() if rung >= self.least]
        fitting = bisect_right(rungs, False, key=lambda rung: not self.fits(Setting(policy, rung)))
        while fitting and not self.fits(Setting(policy, rungs[fitting - 1])):  # what was tried may bend the line
            fitting -= 1
        return Setting(policy, rungs[fitting - 1]) if fitting else None

    def fastest(self) -> Setting | None:
        """Of all that fit; of equals that which does least. None where none fits."""
        found = [one for policy in self.costs if (one := self.largest(policy)) is not None]
        return min(found, key=self.cost) if found else None

    def smallest(self) -> Setting:
        """That which takes the least memory."""
        return Setting(list(self.costs)[-1], self.least)


def question(
    free: int,
    estimated: Callable[[str, int], int],
    costs: Mapping[str, float],
    longest: int,
    asked: int | None,
    most: int,
) -> Question:
    """asked: `micro_batch_tokens`, which leaves only the policy to be chosen; most: tokens of a micro-batch, at most."""
    least = round_up(longest)
    if asked is not None:
        least = max(least, round_down(asked))
        return Question(free, estimated, costs, least, least)
    return Question(free, estimated, costs, least, max(least, round_down(most)))


def largest_step(plan: Plan) -> int:
    """Tokens of the largest step of the first epoch on one rank, if they were spread evenly."""
    lengths, steps = plan.first_units
    totals = np.add.reduceat(lengths, steps[:-1])
    return math.ceil(int(totals.max()) / plan.world)


def most_useful(plan: Plan, useful: int) -> int:
    """Tokens beyond which a micro-batch is not made: larger ones are hardly faster, or no step has them. A rung. useful: of
    `useful_tokens`."""
    uneven = plan.longest if plan.world > 1 else 0
    return min(useful, round_up(largest_step(plan) + uneven))


def try_out(asked: Question, run: Callable[[Setting], Measured | None], most: int = 5) -> Setting | None:
    """The fastest setting that was seen to fit, by running at most `most` of them; None where none was.

    The last one that is tried, where none did, is that which takes least. run: what a setting takes; None where memory runs
    out.
    """
    seen: list[Setting] = []
    for left in reversed(range(most)):
        next_one = asked.fastest() or asked.smallest()
        if not left and not seen:
            next_one = asked.smallest()
        if next_one in asked.tried or (seen and asked.cost(next_one) > WORTH * min(map(asked.cost, seen))):
            break
        asked.tried[next_one] = found = run(next_one)
        if found is not None and found.bytes <= asked.limit():
            seen.append(next_one)
    return min(seen, key=asked.cost) if seen else None


def relative_costs(policies: list[str], frozen: bool) -> dict[str, float]:
    """Time of a token under each policy, by FLOPs. frozen: the layers' own weights are not trained.

    A layer computed again adds its forward pass: a third of 6 FLOPs a weight, half of 4 where weights are frozen; the last
    product is left out, so 1.45 there (1.42 was measured on an H200, 1,353 ms for 952).
    """
    again = 1.45 if frozen else 1.33
    every = {"none": 1.0, "selective": CHEAP_AGAIN, "full": again, "offload": again + HOST_COPIES}
    return {policy: every[policy] for policy in every if policy in policies}
