"""The reference of a micro-batch computed in the step that needs it, instead of brought with its pairs.

Legend of shapes: P pairs, Q = 2 P sequences (2p chosen, 2p + 1 rejected), C values of a pair (chosen, rejected and, where
tails are kept, the tail of either).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.profiler import record_function

from dynotune.measure.evidence import Phase
from dynotune.measure.traces.attribution import phase_mark
from dynotune.model.head.sequences import SequenceScores

if TYPE_CHECKING:
    from dynotune.execution.pairs import PairValues


class Scorer(Protocol):
    """A path of pairs."""

    def scores(self, batch: Any, *, logps_only: bool = False) -> SequenceScores:
        """Of all answers of a micro-batch, with gradient where it is wanted; of what losses and metrics need beside
        their log-probabilities nothing, where they are asked for alone."""
        ...


@dataclass(slots=True)
class ReferenceInStep:
    """All paths of a run have the same one."""

    context: Callable[[], AbstractContextManager[Any]] | None = None
    """What the model is its own reference in. None: values come with the pairs."""

    def values(self, scores: Callable[..., SequenceScores], batch: Any) -> "PairValues":
        """What stands beside the tokens of `batch`, its reference included. scores: as `Scorer.scores`."""
        values: PairValues = batch.values
        if self.context is None:
            return values
        # For a trace it is no part of the policy's forward pass, by which speed-ups are proved.
        with record_function(phase_mark(Phase.OTHER)), self.context():
            return replace(values, reference_PC=by_pair(scores(batch, logps_only=True)).double())


def by_pair(scores: SequenceScores) -> Tensor:
    """[P, C] in nats."""
    sides = [scores.logps_Q] if scores.tails_Q is None else [scores.logps_Q, scores.tails_Q]
    return torch.cat([values_Q.view(-1, 2) for values_Q in sides], 1)
