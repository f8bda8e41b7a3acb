"""The labelled rows walk through the head in chunks, and their gradients are formed on the way: what goes in and comes out.

Legend of shapes: T tokens, D hidden, V vocabulary, N label tokens.
"""

from dataclasses import dataclass, field

from torch import Tensor

from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import Rows
from dynotune.objectives.row_loss import RowLoss


@dataclass(frozen=True, slots=True)
class Work:
    """What to do."""

    hidden_TD: Tensor
    predictors_N: Tensor
    targets_N: Tensor
    loss: RowLoss
    logits: LogitMap
    rows: Rows
    form: bool
    """Whether gradients are wanted."""

    def rows_of(self, first: int, end: int) -> Tensor:
        """The labelled rows `first` to `end` as the projection gets them, a copy."""
        rows = self.hidden_TD.index_select(0, self.predictors_N[first:end])
        return rows if self.logits.before == 1.0 else rows.mul_(self.logits.before)


@dataclass(slots=True)
class Done:
    """What came of it."""

    rows_3N: Tensor
    """Loss, hit and entropy of each label token."""

    gradient_ND: Tensor | None = None
    """Of the losses' sum by the labelled rows of the hidden states; None where none was wanted."""

    trained: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    """Of the losses' sum by the head's trained tensors, in float32 (or float64)."""
