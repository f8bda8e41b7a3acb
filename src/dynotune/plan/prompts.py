"""Pairs with the same prompt: where several stand in one micro-batch, it is computed once for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynotune.data.pairs import Pairs

if TYPE_CHECKING:
    from dynotune.plan.layout import MicroBatch
    from dynotune.plan.plan import Plan

LOOKED_AT = 16
"""Steps of an epoch that are laid out to find the micro-batch with most keys."""


@dataclass(frozen=True, slots=True)
class Alike:
    """What pairs of a data set have in common, by numbers that are equal where tokens are."""

    prompts: NDArray[np.int64]
    """[pairs]. An empty prompt has a number of its own."""

    prompt_tokens: NDArray[np.int64]
    """[pairs], of the chosen side; a side keeps a token of its own."""

    sides: NDArray[np.int64]
    """[pairs, 2]. Sides with one number are the same tokens behind the same prompt."""

    def all_differ(self, rows: NDArray[np.int64]) -> bool:
        """Whether no two of these pairs have the same prompt."""
        return len(np.unique(self.prompts[rows])) == len(rows)

    def begun(self, rows: NDArray[np.int64], lengths: NDArray[np.int64], begun: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens [rows, 2] of both sides that stand before them in a micro-batch which holds these pairs in this order.

        lengths: of both sides [rows, 2]; begun: the same of each pair by itself [rows, 2].
        """
        prompts = self.prompts[rows]
        begun[:, 0] = np.where(_first(prompts), 0, self.prompt_tokens[rows])
        return np.where(_first(self.sides[rows].reshape(-1)).reshape(-1, 2), begun, lengths - 1)


def alike(pairs: Pairs) -> Alike | None:
    """Of all pairs of a data set, as far as they are used; None where no two have a prompt in common."""
    tokens = np.minimum(pairs.prompt_lengths, pairs.lengths[:, 0] - 1)
    _, prompts = np.unique(pairs.prompt_digests(), return_inverse=True)
    prompts = np.where(tokens > 0, prompts, len(prompts) + np.arange(len(prompts)))
    _, which, times = np.unique(prompts, return_inverse=True, return_counts=True)
    several = np.flatnonzero(times[which] > 1)
    if not len(several):
        return None
    sides = np.arange(2 * len(prompts)).reshape(-1, 2)
    known: dict[tuple[int, int], int] = {}
    for pair, prompt, digests in zip(
        several.tolist(), prompts[several].tolist(), pairs.side_digests(several).tolist(), strict=True
    ):
        sides[pair] = [known.setdefault((prompt, digest), 2 * pair + side) for side, digest in enumerate(digests)]
    return Alike(prompts, tokens, sides)


def most_shared(plan: "Plan") -> "MicroBatch | None":
    """Of the first epoch the micro-batch whose sequences have most tokens, a prompt that several have counted for each: the
    keys that attention holds. None where no two pairs of a step have a prompt in common.

    It is looked for in the steps whose pairs have most prompt tokens in common.
    """
    alike: Alike | None = getattr(plan.spans, "alike", None)
    if alike is None:
        return None
    pairs, _, steps = plan.first_epoch
    number = np.repeat(np.arange(len(steps) - 1), np.diff(steps))
    _, first = np.unique(np.stack([number, alike.prompts[pairs]], 1), axis=0, return_index=True)
    again = alike.prompt_tokens[pairs]
    again[first] = 0
    shared = np.bincount(number, again)
    most = [step for step in np.argsort(-shared, kind="stable")[:LOOKED_AT].tolist() if shared[step]]
    found = [batch for step in most for batch in plan.step(step + 1).all_micro_batches]
    return max(found, key=lambda batch: int(plan.spans.attention_of(batch.rows)[0].sum()), default=None)


def linked(parts: Sequence[NDArray[np.int64]], prompts: NDArray[np.int64]) -> list[list[NDArray[np.int64]]]:
    """Parts of a step's places in sets: those with a prompt in common are in one, over others too. All keep their order.

    prompts: of each place.
    """
    into = list(range(len(parts)))

    def end(i: int) -> int:
        while into[i] != i:
            i = into[i]
        return i

    first_of: dict[int, int] = {}
    for i, places in enumerate(parts):
        for prompt in prompts[places].tolist():
            a, b = end(i), end(first_of.setdefault(prompt, i))
            into[max(a, b)] = min(a, b)
    found: dict[int, list[NDArray[np.int64]]] = {}
    for i, places in enumerate(parts):
        found.setdefault(end(i), []).append(places)
    return list(found.values())


def _first(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which are the first of their number."""
    found = np.zeros(len(numbers), np.bool_)
    found[np.unique(numbers, return_index=True)[1]] = True
    return found
