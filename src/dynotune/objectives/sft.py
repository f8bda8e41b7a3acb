"""Supervised fine-tuning: the negative log-likelihood of the label tokens, and its two variants.

Shapes: T tokens of one document, V vocabulary, N label tokens.
"""

from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.data.examples import IGNORE
from dynotune.errors import ConfigError
from dynotune.objectives.counted import Counted
from dynotune.objectives.row_loss import ROW_SUMS, RowLoss
from dynotune.plan.truncation import Units


class Objective(Counted, Protocol):
    """A loss of documents, token by token."""

    row_loss: RowLoss
    """The same loss in explicit form, for the labelled-rows head."""

    def __call__(self, logits_TV: Tensor, labels_T: Tensor) -> tuple[Tensor, Tensor]:
        """By autograd, from a document's logits: the plain path, and what the explicit form is tested against.

        Returns the micro-batch's summed loss [] (with gradient) and the detached `sums` [len(sums)].
        """
        ...

    def of_next(self, logits_TV: Tensor, targets_T: Tensor) -> tuple[Tensor, Tensor]:
        """The same of what each position is to predict, `IGNORE` where that is nothing."""
        ...


class SFTObjective:
    """Negative log-likelihood over the step's label tokens.

    `dft` weights each token by its own probability, without a gradient through the weight (arXiv 2508.05629).
    Label smoothing moves a share e of the target to the uniform distribution, as transformers' LabelSmoother does:
    (1 - e) * nll + e * mean over the vocabulary of the negative log-probabilities.
    """

    sums: tuple[str, ...] = ROW_SUMS

    def __init__(self, config: SFTObjectiveConfig) -> None:
        if config.label_smoothing_factor and config.loss_type != "nll":
            raise ConfigError(
                f"`label_smoothing_factor: {config.label_smoothing_factor}` has no meaning with"
                f" `loss_type: {config.loss_type}`. Take one of the two."
            )
        self.loss_type, self.smoothing = config.loss_type, config.label_smoothing_factor
        self.row_loss = RowLoss(smoothing=self.smoothing, by_probability=self.loss_type == "dft")

    def counts(self, spans: Units, rows: NDArray[np.int64]) -> tuple[int, ...]:
        # TRL's packing may cut bins so that a whole step holds no label: its loss and gradient are 0, not 0 / 0.
        labels = max(1, int(spans.label_tokens[rows].sum()))
        return (labels,) * (1 + len(self.sums))

    def __call__(self, logits_TV: Tensor, labels_T: Tensor) -> tuple[Tensor, Tensor]:
        return self.of_next(logits_TV[:-1], labels_T[1:])  # position t predicts token t + 1

    def of_next(self, logits_TV: Tensor, targets_T: Tensor) -> tuple[Tensor, Tensor]:
        # Rows without a label stay in the sum as zeros: choosing them by a boolean index would make the host wait for the
        # device.
        precision = torch.promote_types(logits_TV.dtype, torch.float32)
        logps_TV = F.log_softmax(logits_TV.to(precision), dim=-1)
        keep_T = targets_T != IGNORE
        logps_T = logps_TV.gather(-1, targets_T.clamp(min=0)[:, None])[:, 0]
        loss_T = -logps_T
        if self.loss_type == "dft":
            loss_T = loss_T * logps_T.detach().exp()
        elif self.smoothing:
            loss_T = (1 - self.smoothing) * loss_T - self.smoothing * logps_TV.mean(-1)
        with torch.no_grad():
            entropy_T = -(logps_TV.exp() * logps_TV).sum(-1)
            hits_T = logps_TV.argmax(-1) == targets_T
            sums = torch.stack([(hits_T & keep_T).sum(dtype=precision), entropy_T.where(keep_T, 0.0).sum()])
        return loss_T.where(keep_T, 0.0).sum(), sums
