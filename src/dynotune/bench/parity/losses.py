"""The losses of a step one by one, as the standing run computes them: of each label token, or of each pair.

Legend of shapes: N label tokens of a micro-batch, n of one document, P pairs, Q = 2 P answers.
"""

from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from dynotune.data.examples import IGNORE
from dynotune.execution.packed import PackedPath
from dynotune.execution.pairs import PairsPath
from dynotune.execution.plain import PlainPath
from dynotune.execution.plain_pairs import PlainPairsPath
from dynotune.model.attention import hidden_states
from dynotune.model.forward import logits_of_document
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import rows_in_torch
from dynotune.model.packed import PackedBatch
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.row_loss import ROW_SUMS
from dynotune.objectives.sft import Objective
from dynotune.plan.plan import Step
from dynotune.train.run import Run


@torch.no_grad()
def losses_of(run: Run, step: Step) -> dict[str, Tensor]:
    """`loss/ROW` of every example of the step, on the host: [n] of a document, [1] of a pair, with
    `logps/ROW` and `labels/ROW` (label tokens) [2]."""
    found: dict[str, Tensor] = {}
    with closing(run.feed.batches(step.micro_batches)) as batches:
        for micro_batch, batch in zip(step.micro_batches, batches, strict=True):
            rows = micro_batch.rows.tolist()
            with run.path.engaged(), run.autocast():
                found |= _of_pairs(run.path, batch, rows) or _of_documents(run.path, batch, rows)
    return {name: values.detach().float().cpu() for name, values in found.items()}


def _of_documents(path: Any, batch: Any, rows: list[int]) -> dict[str, Tensor]:
    if isinstance(path, PlainPath):
        each = (_plain(path.objective, logits_of_document(path.model, ids_T), labels_T) for ids_T, labels_T in batch)
        return {f"loss/{row}": loss_n for row, loss_n in zip(rows, each, strict=True)}
    assert isinstance(path, PackedPath), type(path)
    loss_N = _packed(path, batch)
    of_document_N = torch.bucketize(batch.predictors_N, batch.boundaries_S1[1:].long(), right=True)
    return {f"loss/{row}": loss_N[of_document_N == at] for at, row in enumerate(rows)}


def _packed(path: PackedPath, batch: PackedBatch) -> Tensor:
    hidden_TD = hidden_states(path.model, batch)
    if path.site.labelled_rows:
        return path.head.token_losses(hidden_TD, batch, path.objective)
    logits_NV = path.head.few_logits(hidden_TD).index_select(0, batch.predictors_N)
    return _by_row(path.objective, logits_NV, batch.targets_N)


def _plain(objective: Objective, logits_TV: Tensor, labels_T: Tensor) -> Tensor:
    """[n] of a document."""
    at_n = (labels_T[1:] != IGNORE).nonzero()[:, 0]
    return _by_row(objective, logits_TV.index_select(0, at_n), labels_T[at_n + 1])


def _by_row(objective: Objective, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    precision = torch.promote_types(logits_NV.dtype, torch.float32)
    out_3N = torch.empty(1 + len(ROW_SUMS), len(targets_N), dtype=precision, device=logits_NV.device)
    rows_in_torch(logits_NV.clone(), targets_N, objective.row_loss, LogitMap(), False, out_3N)
    return out_3N[0]


def _of_pairs(path: Any, batch: Any, rows: list[int]) -> dict[str, Tensor]:
    if not isinstance(path, PairsPath | PlainPairsPath):
        return {}
    each = _Each(path.objective)
    scores = path.scores(batch)
    path.in_step.values(path.scores, batch).loss_of(scores, each)  # type: ignore[arg-type]  # all that it asks for
    logps_P2 = scores.logps_Q.view(-1, 2)
    assert each.losses_P is not None
    found: dict[str, Tensor] = {}
    for at, row in enumerate(rows):
        found[f"loss/{row}"] = each.losses_P[at : at + 1]
        found[f"logps/{row}"] = logps_P2[at]
        found[f"labels/{row}"] = batch.values.lengths_Q.view(-1, 2)[at]
    return found


class _Each:
    """Stands in for an objective and keeps the loss of each pair."""

    def __init__(self, objective: PreferenceObjective) -> None:
        self.objective, self.needs = objective, objective.needs
        self.losses_P: Tensor | None = None

    def __call__(self, pairs: Any, predictions: Any) -> tuple[Tensor, Tensor]:
        self.losses_P = self.objective.losses(pairs)
        return self.objective(pairs, predictions)
