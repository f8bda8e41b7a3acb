"""A head that is one linear layer: two matrix products a chunk, a third where its weight is trained.

Legend of shapes: T tokens, D hidden, V vocabulary, N label tokens, C rows of one chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dynotune.model.head.chunks import chunks
from dynotune.model.head.products import add_product, product, result_precision
from dynotune.model.head.projection import OwnRows
from dynotune.model.head.rows import statistics
from dynotune.model.head.walk import Done, Work

_ALIGNED = 64
"""Elements. A vocabulary of odd size makes rows that no fast matrix product can write; this stride between them does."""


def compute_precision(weight_VD: Tensor) -> torch.dtype:
    """What a linear layer multiplies in: autocast's precision where it is on, else the weight's."""
    kind = weight_VD.device.type
    if weight_VD.dtype is not torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return weight_VD.dtype


@dataclass(slots=True)
class _Trained:
    """A tensor that the head trains, and its gradient so far."""

    tensor: Tensor
    add: Callable[[Tensor | None, Tensor, Tensor], Tensor]
    """The sum (None: nothing yet) with what a chunk's gradient of logits [C, V] and its rows [C, D] add to it."""

    total: Tensor | None = None


def through_linear(weight_VD: Tensor, bias_V: Tensor | None, work: Work, own: OwnRows | None = None) -> Done:
    """Walk. Logits stand in the compute precision in one buffer, where the row function replaces them by their gradient."""
    n, vocabulary = len(work.targets_N), weight_VD.shape[0]
    precision, device = compute_precision(weight_VD), weight_VD.device
    trained = _trained(weight_VD, bias_V, own) if work.form else []
    form_hidden = work.form and work.hidden_TD.requires_grad
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        weight = weight_VD.to(precision)
        bias = None if bias_V is None else bias_V.to(precision)
        for indices_K, rows_KD in own.rows if own else ():
            weight = weight.index_copy(0, indices_K, rows_KD.to(weight_VD.dtype).to(precision))
        plan = chunks(n, vocabulary, precision.itemsize)
        most = max((end - first for first, end in plan), default=0)
        buffer = torch.empty(most, -(-vocabulary // _ALIGNED) * _ALIGNED, dtype=precision, device=device)
        # oneDNN on CPUs with AMX multiplies what stands behind the end of a row by 0, which NaN would survive.
        buffer[:, vocabulary:] = 0
        done = Done(statistics(n, weight))
        if form_hidden:
            done.gradient_ND = torch.empty(n, weight.shape[1], dtype=result_precision(weight), device=device)
        for first, end in plan:
            rows_CD = work.rows_of(first, end).to(precision)
            z_CV = buffer[: end - first, :vocabulary]
            if bias is None:
                torch.mm(rows_CD, weight.t(), out=z_CV)
            else:
                torch.addmm(bias, rows_CD, weight.t(), out=z_CV)
            targets, out = work.targets_N[first:end], done.rows_3N[:, first:end]
            work.rows(z_CV, targets, work.loss, work.logits, form_hidden or bool(trained), out)
            if done.gradient_ND is not None:
                product(z_CV, weight, done.gradient_ND[first:end])
            for one in trained:
                one.total = one.add(one.total, z_CV, rows_CD)
        if done.gradient_ND is not None and work.logits.before != 1.0:
            done.gradient_ND *= work.logits.before
        for one in trained:
            done.trained.append(one.tensor)
            if one.total is None:  # no label token
                one.total = torch.zeros(one.tensor.shape, dtype=done.rows_3N.dtype, device=device)
            done.gradients.append(one.total)
    return done


def trained_by_linear(weight_VD: Tensor, bias_V: Tensor | None, own: OwnRows | None = None) -> list[Tensor]:
    """What a walk that forms gradients gives gradients of, in its order."""
    return [one.tensor for one in _trained(weight_VD, bias_V, own)]


def _trained(weight_VD: Tensor, bias_V: Tensor | None, own: OwnRows | None) -> list[_Trained]:
    candidates = [_Trained(weight_VD, lambda total, z_CV, rows_CD: add_product(total, z_CV.t(), rows_CD))]
    if bias_V is not None:
        candidates.append(_Trained(bias_V, _add_columns))
    for indices_K, rows_KD in own.rows if own else ():
        candidates.append(_Trained(rows_KD, partial(_add_own, indices_K)))
    return [one for one in candidates if one.tensor.requires_grad]


def _add_columns(total: Tensor | None, z_CV: Tensor, rows_CD: Tensor) -> Tensor:
    columns_V = z_CV.sum(0, dtype=torch.promote_types(z_CV.dtype, torch.float32))
    return columns_V if total is None else total.add_(columns_V)


def _add_own(indices_K: Tensor, total: Tensor | None, z_CV: Tensor, rows_CD: Tensor) -> Tensor:
    return add_product(total, z_CV.index_select(1, indices_K).t(), rows_CD)
