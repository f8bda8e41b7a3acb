"""A step's documents over ranks, by what they cost: every rank works it out for all, from lengths alone, and they agree.

Longest processing time first (R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969), which puts each document
where the least is; then single moves and exchanges between the most loaded rank and another, while they help.
Whole numbers throughout: sums of fractions may differ between processors, and then so would ranks.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EVEN_AT = 24_576
"""Tokens of a document whose attention costs as much as its matrix products, where the model's own FLOPs are not known:
12 times the hidden size, of which 2,048 is a usual one."""

NEAR_ENOUGH = 512
"""A 512th above the least that is possible, exchanges end: what padding adds is more."""

EXCHANGES = 256
"""Of one step, at most."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a document of n tokens costs: n (n + even_at), in tokens times tokens."""

    even_at: int = EVEN_AT
    """Where the attention, which grows by n^2, has caught up with the products, which grow by n."""

    @classmethod
    def of_flops(cls, per_token: int, attention: int, tokens: int) -> "Cost":
        """From FLOPs: of the products for a token, and of the attention of one document of `tokens` tokens."""
        return cls(max(1, per_token * tokens * tokens // max(1, attention)))

    def of(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of documents of these `lengths` [documents]."""
        return lengths * (lengths + self.even_at)


def spread(costs: NDArray[np.int64], world: int) -> list[NDArray[np.int64]]:
    """For each of `world` ranks the documents that it takes: indices into `costs` [documents], ascending.

    Every document goes to one rank; a rank may get none. The same costs always give the same shares.
    """
    values: list[int] = costs.tolist()
    order: list[int] = np.argsort(-costs, kind="stable").tolist()
    shares: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    least = [(0, rank) for rank in range(world)]
    for i in order:
        load, rank = heapq.heappop(least)
        shares[rank].append(i)
        loads[rank] = load + values[i]
        heapq.heappush(least, (loads[rank], rank))
    if world > 1 and values:
        _exchange(costs, shares, loads)
    return [np.array(sorted(one), np.int64) for one in shares]


def _exchange(costs: NDArray[np.int64], shares: list[list[int]], loads: list[int]) -> None:
    """Move a document off the most loaded rank, or change it for a cheaper one elsewhere, while the two end lower."""
    possible = max(int(costs.max()), -(-sum(loads) // len(loads)))
    for _ in range(EXCHANGES):
        top = max(range(len(loads)), key=lambda rank: (loads[rank], -rank))
        if loads[top] <= possible + possible // NEAR_ENOUGH:
            return
        others = [rank for rank in range(len(loads)) if rank != top]
        there = [(rank, i) for rank in others for i in (*shares[rank], -1)]  # -1: nothing comes back
        owner = np.array([loads[rank] for rank, _ in there])
        back = np.array([costs[i] if i >= 0 else 0 for _, i in there])
        moved = costs[shares[top]][:, None] - back[None, :]
        after = np.maximum(loads[top] - moved, owner[None, :] + moved)
        mine, theirs = np.unravel_index(int(after.argmin()), after.shape)
        if after[mine, theirs] >= loads[top]:
            return
        rank, other = there[theirs]
        one, amount = shares[top][mine], int(moved[mine, theirs])
        shares[top].remove(one)
        shares[rank].append(one)
        if other >= 0:
            shares[rank].remove(other)
            shares[top].append(other)
        loads[top] -= amount
        loads[rank] += amount


def imbalance(costs: NDArray[np.int64], shares: list[NDArray[np.int64]]) -> float:
    """Load of the most loaded rank over the least that any spreading could give: the mean, or the costliest document."""
    loads = [int(costs[one].sum()) for one in shares]
    return max(loads) / max(sum(loads) / len(loads), float(costs.max()))
