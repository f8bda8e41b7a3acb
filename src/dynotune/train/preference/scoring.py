"""Log-probabilities of a run's pairs by the path that trains them, in micro-batches of the plan's own sizes.

So whatever memory a training step has is enough, and the reference comes from the kernels that the policy comes from.
Legend of shapes: P pairs, Q = 2 P sequences (2p chosen, 2p + 1 rejected), C values of a pair (chosen, rejected and, where
tails are kept, the tail of either).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dynotune.execution.feed import Feed
from dynotune.execution.in_step import ReferenceInStep, Scorer, by_pair
from dynotune.execution.pairs import PairItems
from dynotune.execution.path import ExecutionPath
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.as_it_was import as_it_was
from dynotune.plan.ladder import Ladder
from dynotune.plan.layout import MicroBatch
from dynotune.plan.pairs import PairSpans
from dynotune.plan.spread import Cost
from dynotune.plan.together import lay_out_step
from dynotune.plan.truncation import Units
from dynotune.reference import as_reference
from dynotune.speedups.site import Site


class ScoringPath(ExecutionPath, Scorer, Protocol):
    """Runs pairs, and can say their log-probabilities."""

    in_step: ReferenceInStep


@dataclass(frozen=True, slots=True)
class Scoring:
    """How micro-batches of pairs are scored in this run."""

    path: ScoringPath
    site: Site
    ladder: Ladder | None
    device: torch.device
    columns: int
    """C."""

    autocast: Callable[[], AbstractContextManager[Any]] | None = None
    """What passes run in; default that of the run's steps."""

    def of(
        self, items: PairItems, spans: Units, context: Callable[[], AbstractContextManager[Any]]
    ) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
        """What gives the values [n, C] in nats of the pairs of `items` with these numbers [n], each computed inside
        `context`. Random states, buffers and modes stay as they are. Those with one prompt compute it once."""

        units = self.path.units(spans)
        assert isinstance(units, PairSpans)
        units = units.without_groups()

        def score(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
            [laid_out] = lay_out_step(units, numbers, self.ladder, 1, Cost())
            with as_it_was(self.site.model, self.device), context():
                found, _ = self.run(items, [MicroBatch(one.rows, one.tokens) for one in laid_out])
            scored = np.concatenate([numbers[:0], *(one.rows for one in laid_out)])
            values_PC = np.empty_like(found)
            values_PC[np.argsort(numbers, kind="stable")] = found[np.argsort(scored, kind="stable")]
            return values_PC

        return score

    def run(
        self, items: PairItems, micro_batches: Sequence[MicroBatch]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The values [P, C] of the pairs of these micro-batches, one after another, by one pass each as things stand; and
        those of the reference that came with them [P, C or 0]."""
        found, came = [torch.zeros(0, self.columns, device=self.device)], []
        with closing(Feed(items, self.path, self.device, self.site.ahead).batches(micro_batches)) as arriving:
            for batch in arriving:
                with self.path.engaged(), (self.autocast or self.site.autocast)():
                    scores = self.path.scores(batch, logps_only=True)
                found.append(by_pair(scores).detach())
                came.append(batch.values.reference_PC)
                del scores  # with the graph, before the next pass
        with_them = [one for one in came if len(one)]  # an empty micro-batch does not know how many columns there are
        reference_PC = torch.cat(with_them) if with_them else torch.zeros(0, 0)
        return torch.cat(found).double().cpu().numpy(), reference_PC.double().cpu().numpy()


@contextmanager
def reference_on(path: ExecutionPath, model: nn.Module, keep_adapter: bool) -> Iterator[None]:
    """`as_reference`, of which kernels that stand in for an adapter's layers tell nothing."""
    uncounted = path.uncounted() if isinstance(path, SideBySidePath) else nullcontext()
    with as_reference(model, keep_adapter=keep_adapter), uncounted:
        yield
