"""The language model's head on labelled rows.

Rows without a label never meet the head, and full-precision logits of a batch never exist: rows go through in chunks of the
whole vocabulary, and each chunk's logits are replaced by their gradient as soon as their loss is known. The backward pass
only scales. Legend of shapes: T tokens of the micro-batch, D hidden, V vocabulary, N label tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.model.head.formed import Formed
from dynotune.model.head.linear import through_linear
from dynotune.model.head.logit_map import LogitMap, logit_map
from dynotune.model.head.module import through_module
from dynotune.model.head.projection import active, is_linear, projection, vocabulary
from dynotune.model.head.rows import Rows, rows_in_torch
from dynotune.model.head.walk import Done, Work
from dynotune.model.packed import PackedBatch
from dynotune.objectives.row_loss import ROW_SUMS
from dynotune.objectives.sft import Objective


@dataclass(frozen=True, slots=True)
class Head:
    """What turns hidden states into a loss. Call it in place of the model's own head and the objective."""

    module: nn.Module
    """The model's output projection, with whatever PEFT put around it."""

    logits: LogitMap
    vocabulary: int

    @classmethod
    def of(cls, model: Any) -> "Head | None":
        """The head of `model`, PEFT-wrapped or not; None where it has no output projection of its own."""
        module = projection(model)
        if module is None:
            return None
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        return cls(module, logit_map(base), vocabulary(module))

    def __call__(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective) -> tuple[Tensor, Tensor]:
        """Loss [] summed over the batch's label tokens, with gradient, and the detached `objective.sums` [n].

        hidden_TD: what the inner model returns, in any floating precision. `batch.predictors_N` names each row at most
        once. Gradients reach `hidden_TD` and the head's trained parameters, zeros where there is no label token. Without
        gradients to form (`torch.no_grad`, or nothing that wants one) half the work is done. One backward a call.
        """
        assert objective.sums == ROW_SUMS, objective.sums
        done = self._walk(hidden_TD, batch, objective, form=torch.is_grad_enabled())
        totals = done.rows_3N.sum(1, dtype=torch.float64).to(done.rows_3N.dtype)
        loss, sums = totals[0], totals[1:]
        if done.gradient_ND is not None or done.trained:
            loss = Formed.apply(  # type: ignore[no-untyped-call]
                loss, batch.predictors_N, done.gradient_ND, done.gradients, hidden_TD, *done.trained
            )
        return loss, sums

    def token_losses(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective) -> Tensor:
        """The loss of each label token [N], without gradient."""
        return self._walk(hidden_TD, batch, objective, form=False).rows_3N[0]

    def _walk(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective, form: bool) -> Done:
        rows: Rows = rows_in_torch
        work = Work(hidden_TD, batch.predictors_N, batch.targets_N, objective.row_loss, self.logits, rows, form)
        module = active(self.module)
        if is_linear(module):
            return through_linear(module.weight, module.bias, work)
        return through_module(module, self.vocabulary, work)
