"""Before the first update the policy is its own reference: the first step, run once by the training pass, must show it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dynotune.data.examples import Example, Examples
from dynotune.data.pairs import Pairs
from dynotune.execution.pairs import PairItems
from dynotune.model.as_it_was import as_it_was
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Step
from dynotune.reference import Key, StepZero, Suspects, measured_noise, rounding_of, stop_on_breach
from dynotune.reference.check import Score
from dynotune.reference.pairs import WIDTH, pair_digests
from dynotune.train.faults.shortage import shortage_of
from dynotune.train.preference.scoring import Scoring

SAMPLE = 12
"""Pairs of which noise is measured."""

LONG = 1.0
"""Seconds above which it is said how long it took."""


@dataclass(frozen=True, slots=True)
class Known:
    """The reference of a run's pairs, by their numbers."""

    values_PC: NDArray[np.float64]
    """Nats; NaN for pairs that the run does not meet."""

    digests_P: NDArray[np.uint8]
    """[P, 16], of the tokens and masks that the values belong to (`pair_digests`)."""

    @classmethod
    def of(
        cls, items: PairItems, rows: NDArray[np.int64], values: NDArray[np.float64], digests: NDArray[np.uint8]
    ) -> Self:
        """Of the pairs `rows` [n]: values [n, C], digests [n, 16]."""
        values_PC = np.full((len(items.pairs), values.shape[1]), np.nan)
        digests_P = np.zeros((len(items.pairs), WIDTH), np.uint8)
        values_PC[rows], digests_P[rows] = values, digests
        return cls(values_PC, digests_P)


@dataclass(frozen=True, slots=True)
class Check:
    """What the first step is compared with, and what is asked where it differs."""

    model: nn.Module
    scoring: Scoring
    items: PairItems
    known: Known
    reference: Score
    """By the reference, computed now."""

    policy: Score
    """By the policy, as the reference is computed: no dropout, no gradients."""

    as_written: Score
    """By the reference, by the model's own operations in the same precision: without any speed-up."""

    key_then: Key
    key_now: Callable[[], Key]
    bound: float
    """Of the log-probability; `noise.EXACT` where arithmetic is exact."""

    exact: bool
    ranks: Ranks
    say: Callable[[str], None]

    def __call__(self, step: Step) -> None:
        """Run this rank's micro-batches of `step`, as training will, once and without an update. All ranks together.

        Raises `TrainingError`, which names what differs, where a log-ratio is not zero.
        """
        began = time.perf_counter()
        numbers = np.concatenate([batch.rows for batch in step.micro_batches])
        trained = self._trained(step)
        if self.ranks.agree(trained is None)[0] or trained is None:
            self.say("step 0: not checked: memory ran out in it; training takes smaller micro-batches then")
            return
        policy_PC, came_PC = trained
        first = StepZero(policy_PC, came_PC if came_PC.size else self.known.values_PC[numbers], self.bound)
        if len(first.breaches) and not self.exact:  # the sample may have been of other lengths
            worst = numbers[np.argsort(-first.off)[:SAMPLE]]
            first = replace(first, bound=max(self.bound, measured_noise(self.reference, worst)))
            if len(first.breaches):  # kernels of the training pass alone, as compiled layers have them, round otherwise
                rounding = rounding_of(self.as_written, self.reference, worst)
                first = replace(first, bound=max(first.bound, rounding))
        if len(first.breaches):
            stop_on_breach(first, self._suspects(numbers))
        told = self.ranks.gather([first.policy_PC.tolist(), first.reference_PC.tolist(), first.bound])
        every = StepZero(
            np.concatenate([np.array(policy).reshape(-1, self.scoring.columns) for policy, _, _ in told]),
            np.concatenate([np.array(reference).reshape(-1, self.scoring.columns) for _, reference, _ in told]),
            max(bound for _, _, bound in told),
        )
        seconds = time.perf_counter() - began
        self.say(str(every) + (f", in {seconds:.1f} s" if seconds > LONG else ""))

    def _trained(self, step: Step) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Of this rank's pairs, by the training pass (`Scoring.run`); None where memory ran out."""
        try:
            with as_it_was(self.model, self.scoring.device):
                self.model.train()
                return self.scoring.run(self.items, step.micro_batches)
        except (RuntimeError, MemoryError) as error:
            if shortage_of(error) is None:
                raise
        return None

    def _suspects(self, numbers: NDArray[np.int64]) -> Suspects:
        return Suspects(
            fed_P=self._fed(numbers),
            kept_P=self.known.digests_P[numbers],
            key_now=self.key_now(),
            key_then=self.key_then,
            reference_again_PC=self.reference(numbers),
            policy_again_PC=self.policy(numbers),
        )

    def _fed(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Digests [P, 16] of the documents that the feed gets."""
        sides = [side for pair in self.items.at(numbers) for side in (pair.chosen, pair.rejected)]
        place = self.items.pairs.examples.places[0]
        return pair_digests(Pairs(Examples.from_list((Example(*side, place) for side in sides), per_example=2)))


def sample_of(label_counts_P2: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Up to `SAMPLE` of the pairs `numbers`: half of them those with the shortest answers, whose log-probabilities low
    precision changes most for their size, the others evenly spread.

    label_counts_P2: label tokens of both sides, of these pairs.
    """
    by_length = np.argsort(label_counts_P2.min(1), kind="stable")
    shortest, others = by_length[: SAMPLE // 2], by_length[SAMPLE // 2 :]
    at = np.unique(np.linspace(0, len(others) - 1, min(SAMPLE // 2, len(others))).round().astype(np.int64))
    chosen: NDArray[np.int64] = numbers[np.sort(np.concatenate([shortest, others[at]]))]
    return chosen
