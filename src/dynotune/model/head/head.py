"""The language model's head on labelled rows.

Rows without a label never meet the head, and full-precision logits of a batch never exist: rows go through in chunks of the
whole vocabulary, and each chunk's logits are replaced by their gradient as soon as their loss is known. The backward pass
only scales. Legend of shapes: T tokens of the micro-batch, D hidden, V vocabulary, N label tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dynotune.model.head.formed import Formed
from dynotune.model.head.kernel import row_function
from dynotune.model.head.linear import compute_precision, through_linear, trained_by_linear
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.module import through_module, trained_by_module
from dynotune.model.head.projection import active, is_linear, own_rows
from dynotune.model.head.rows import Rows, rows_in_torch
from dynotune.model.head.walk import Done, Work
from dynotune.model.packed import PackedBatch
from dynotune.objectives.row_loss import ROW_SUMS
from dynotune.objectives.sft import Objective


@dataclass(frozen=True, slots=True)
class Head:
    """What turns hidden states into a loss, in place of the model's own head and the objective. `find_head` finds it."""

    module: nn.Module
    """The model's output projection, with whatever PEFT put around it."""

    logits: LogitMap
    vocabulary: int
    """Logits a row. Sizes chunks; nothing else depends on it."""

    def __call__(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective) -> tuple[Tensor, Tensor]:
        """Loss [] summed over the batch's label tokens, with gradient, and the detached `objective.sums` [n].

        hidden_TD: what the inner model returns, in any floating precision. `batch.predictors_N` names each row at most
        once. Gradients reach `hidden_TD` and the head's trained parameters, zeros where there is no label token. Without
        gradients to form (`torch.no_grad`, or nothing that wants one) half the work is done. One backward a call.
        """
        assert objective.sums == ROW_SUMS, objective.sums
        done = self.walk(self._work(hidden_TD, batch, objective, form=torch.is_grad_enabled()))
        totals = done.rows_3N.sum(1, dtype=torch.float64).to(done.rows_3N.dtype)
        loss, sums = totals[0], totals[1:]
        if done.gradient_ND is not None or done.trained:
            loss = Formed.apply(  # type: ignore[no-untyped-call]
                loss, batch.predictors_N, done.gradient_ND, done.gradients, hidden_TD, *done.trained
            )
        return loss, sums

    def token_losses(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective) -> Tensor:
        """The loss of each label token [N], without gradient."""
        return self.walk(self._work(hidden_TD, batch, objective, form=False)).rows_3N[0]

    def describe(self) -> list[str]:
        """What runs here, for the run's notes: which head, its scaling or cap, its row function."""
        return self._described(by_sequence=False)

    def describe_sequences(self) -> list[str]:
        """The same where `sequence_scores` runs it."""
        return self._described(by_sequence=True)

    def _described(self, by_sequence: bool) -> list[str]:
        module = active(self.module)
        if is_linear(module):
            if not module.weight.requires_grad:
                how = "frozen: two products a chunk"
            elif by_sequence:
                how = "trained: four matrix products a chunk, three of them in the backward pass"
            else:
                how = "trained: three matrix products a chunk"
        elif (own := own_rows(module)) is not None:
            products = "two products a chunk, one for them"
            if by_sequence:
                products = "a product a chunk, and in the backward pass two, and one for them"
            how = f"frozen but for {sum(len(rows) for rows, _ in own.rows)} rows: {products}"
        else:
            origin = type(module).__module__.partition(".")[0]
            how = f"a {type(module).__name__} of {origin}: its own forward and backward, chunk by chunk"
        lines = [f"head on label tokens only, {how}" + (f"; {self.logits}" if str(self.logits) else "")]
        _, reason = row_function(next(self.module.parameters()).device)
        return [*lines, f"the head's row kernel is not used: {reason}"] if reason else lines

    def few_logits(self, hidden_TD: Tensor) -> Tensor:
        """Logits [T, V] of a few rows, by the walk's module and precision, then float32 (float64)."""
        rows_TD, module = hidden_TD * self.logits.before, active(self.module)
        if is_linear(module):
            precision = compute_precision(module.weight)
            bias = None if module.bias is None else module.bias.to(precision)
            z_TV = nn.functional.linear(rows_TD.to(precision), module.weight.to(precision), bias)
        else:
            z_TV = module(rows_TD)
        return self.logits(z_TV.to(torch.promote_types(z_TV.dtype, torch.float32)))

    def walk(self, work: Work) -> Done:
        """The labelled rows through the module that works at present, chunk by chunk, under the caller's autocast."""
        module = active(self.module)
        if is_linear(module):
            return through_linear(module.weight, module.bias, work)
        own = own_rows(module)
        if own is not None:
            return through_linear(own.weight_VD, None, work, own)
        return through_module(module, self.vocabulary, work)

    def trained(self, hidden_TD: Tensor) -> list[Tensor]:
        """The tensors by which a walk that forms gradients would form them, beside the hidden states."""
        module = active(self.module)
        if is_linear(module):
            return trained_by_linear(module.weight, module.bias)
        own = own_rows(module)
        if own is not None:
            return trained_by_linear(own.weight_VD, None, own)
        return trained_by_module(module, hidden_TD)

    def row_function(self, hidden_TD: Tensor) -> Rows:
        """What turns rows of logits into losses where these hidden states are."""
        return rows_in_torch if hidden_TD.dtype is torch.float64 else row_function(hidden_TD.device)[0]

    def _work(self, hidden_TD: Tensor, batch: PackedBatch, objective: Objective, form: bool) -> Work:
        rows = self.row_function(hidden_TD)
        return Work(hidden_TD, batch.predictors_N, batch.targets_N, objective.row_loss, self.logits, rows, form)
