"""What a preference run minimises: the weighted sum of its losses, over the pairs of a step.

Legend of shapes: P pairs of a micro-batch.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynotune.config.checking.preference import preference
from dynotune.config.keys.preference import PreferenceConfig
from dynotune.errors import ConfigError
from dynotune.objectives.preference.logged import OF_PAIRS, OF_TOKENS, Counts, Over, Predictions, pair_sums, token_sums
from dynotune.objectives.preference.losses import LOSSES, needs_of
from dynotune.objectives.preference.pairs import Answers, Need, Pairs, own_likelihood, without_tails
from dynotune.plan.pairs import PairSpans

_PER_TOKEN = frozenset({"simpo", "orpo"})


class PreferenceObjective:
    """Sums over pairs; a step's loss is their sum over its micro-batches and ranks, divided by its pairs.

    It keeps nothing between steps: TRL's `bco_pair` has no running shift of the reward either, so that a checkpoint has
    nothing to hold of it. TRL weighs the batches of a step alike, and so the pairs of a last, smaller batch more; here
    all pairs of a step count the same.
    """

    needs: frozenset[Need]
    """What `Pairs` must hold for the losses of this run; the head and the reference are asked for nothing else."""

    sums: dict[str, Over]
    """Names of what `__call__` returns beside the loss, with what each is divided by (`Counts.of`)."""

    def __init__(self, config: PreferenceConfig, *, predictions: bool = True) -> None:
        """`predictions`: whether `__call__` gets what the head saw, and logs it.

        Raises:
            ConfigError: keys that contradict each other.
        """
        for finding in preference(config, frozenset()):
            if finding.is_error:
                raise ConfigError(finding.text)
        self.config = config
        self.needs = needs_of(config)
        self.sums = OF_PAIRS | OF_TOKENS if predictions else dict(OF_PAIRS)
        weights = config.loss_weights or [1.0] * len(config.loss_type)
        self._losses = [(LOSSES[name].function, weight) for name, weight in zip(config.loss_type, weights, strict=True)]

    def counts(self, spans: PairSpans, rows: NDArray[np.int64]) -> tuple[int, ...]:
        """What is divided by, over these pairs of the plan: the summed loss by the pairs, then each of `sums`."""
        chosen, rejected = spans.side_labels[rows].sum(0).tolist()
        counted = Counts(len(rows), chosen, rejected)
        return tuple(counted.of(over) for over in (Over.PAIRS, *self.sums.values()))

    def losses(self, pairs: Pairs) -> Tensor:
        """The loss of each pair [P], with gradient. Losses that sort put the p-th smallest of a group in place p."""
        return self._sum(self._weighted(pairs))

    def __call__(
        self, pairs: Pairs, predictions: tuple[Predictions, Predictions] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The micro-batch's summed loss [] (with gradient) and the detached `sums` [len(sums)].

        predictions: of the chosen and of the rejected answers, where the objective was made with them.
        """
        weighted = self._weighted(pairs)
        logged = pair_sums(
            (self.rewards(weighted.chosen), self.rewards(weighted.rejected)),
            (weighted.chosen.logps_P, weighted.rejected.logps_P),
        )
        if len(self.sums) > len(OF_PAIRS):
            assert predictions is not None, "this objective logs predictions"
            logged = torch.cat([logged, token_sums(*predictions).to(logged.dtype)])
        return self._sum(weighted).sum(), logged

    def rewards(self, answers: Answers) -> Tensor:
        """The implicit rewards [P], without gradient: `beta` times the log-ratio. Without a reference `beta` times the
        log-probability, per token where the first loss is."""
        with torch.no_grad():
            if Need.REFERENCE in self.needs:
                return self.config.beta * answers.ratios
            per_token = self.config.loss_type[0] in _PER_TOKEN
            return self.config.beta * (answers.logps_P / answers.counts if per_token else answers.logps_P)

    def _weighted(self, pairs: Pairs) -> Pairs:
        alpha = self.config.ld_alpha
        if alpha is None:
            return pairs
        return replace(pairs, chosen=without_tails(pairs.chosen, alpha), rejected=without_tails(pairs.rejected, alpha))

    def _sum(self, weighted: Pairs) -> Tensor:
        weight_P = own_likelihood(weighted) if self.config.use_weighting else None
        total_P = torch.zeros_like(weighted.chosen.logps_P)
        for function, weight in self._losses:
            loss_P = function(weighted, self.config)
            total_P = total_P + weight * (loss_P if weight_P is None else weight_P * loss_P)
        return total_P
